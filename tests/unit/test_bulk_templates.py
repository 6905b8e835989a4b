from __future__ import annotations

import pytest

from pipeline.bulk.templates import sql_of
from pipeline.errors import WrongInput


@pytest.mark.parametrize("template", ["costs $5", "a ${} b", "a ${ } b", "open ${name", "$"])
def test_a_dollar_that_begins_no_expression_is_refused(template: str) -> None:
    with pytest.raises(WrongInput, match=r"behind \$ write \{expression\}"):
        sql_of(template)
