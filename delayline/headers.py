"""The names of the service's headers (docs/wire-format.md). Every other header is the user's own."""

from __future__ import annotations

from typing import Final, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]

PREFIX: Final = "delay-"

# On a request.
H_OP: Final = "delay-op"
H_TARGET_TOPIC: Final = "delay-target-topic"
H_TARGET_KEY: Final = "delay-target-key"
H_TARGET_PARTITION: Final = "delay-target-partition"
H_DELIVER_AT: Final = "delay-deliver-at"
H_AFTER: Final = "delay-after"
H_LEVEL: Final = "delay-level"
H_ID: Final = "delay-id"
H_EXPIRE_AT: Final = "delay-expire-at"
H_IF_EXISTS: Final = "delay-if-exists"
H_CRON: Final = "delay-cron"
H_TIME_ZONE: Final = "delay-time-zone"
H_INTERVAL: Final = "delay-interval"
H_INTERVAL_FACTOR: Final = "delay-interval-factor"
H_TIMES: Final = "delay-times"
H_UNTIL: Final = "delay-until"
H_MISSED: Final = "delay-missed"

# On a delivered record, with delay-id.
H_SOURCE: Final = "delay-source"
H_SCHEDULED_FOR: Final = "delay-scheduled-for"
H_ATTEMPT: Final = "delay-attempt"
H_OCCURRENCE: Final = "delay-occurrence"

# On a request that the service writes back, with delay-attempt and delay-occurrence.
H_PARENT: Final = "delay-parent"
H_ROOT: Final = "delay-root"
H_MOVED_BY: Final = "delay-moved-by"
H_AS_OF: Final = "delay-as-of"
H_SIGNATURE: Final = "delay-signature"  # on a checkpoint, too

# On the mark from which on other settings count.
H_SETTINGS: Final = "delay-settings"
H_SETTINGS_AT: Final = "delay-settings-at"

# On a dead letter, with delay-source.
H_ERROR: Final = "delay-error"
H_ERROR_DETAIL: Final = "delay-error-detail"

# Values of delay-op.
OP_SCHEDULE: Final = b"schedule"
OP_CANCEL: Final = b"cancel"
OP_RESCHEDULE: Final = b"reschedule"
OP_CARRY: Final = b"carry"  # the service's own, as this one
OP_SETTINGS: Final = b"settings"

# Values of delay-if-exists.
REPLACE: Final = b"replace"
KEEP: Final = b"keep"

ID_MAX_BYTES: Final = 1024
