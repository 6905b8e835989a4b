"""Texts with values of a row in them: `Your order ${order_id} waits` is an expression of SQL."""

from __future__ import annotations

import re
from typing import Final

from pipeline.errors import WrongInput

_PART: Final = re.compile(r"\$\$|\$\{([^{}]*)\}|\$")


def sql_of(template: str) -> str:
    """The expression of SQL that gives the text: null where one of its values is. `${expression}` is a value,
    `$$` a dollar. Raises `WrongInput`: a dollar that is neither.
    """
    parts, at = [], 0
    for found in _PART.finditer(template):
        parts.append(_literal(template[at : found.start()]))
        at = found.end()
        if found[0] == "$$":
            parts.append(_literal("$"))
        elif found[1] is None or not found[1].strip():
            raise WrongInput(f"template {template!r}: behind $ write {{expression}}, or $$ for a dollar")
        else:
            parts.append(f"cast(({found[1]}) as string)")
    parts.append(_literal(template[at:]))
    return f"concat({', '.join(parts)})"


def _literal(text: str) -> str:
    """As binary digits, which no setting of Spark's reads otherwise."""
    return f"decode(X'{text.encode().hex()}', 'UTF-8')" if text else "''"
