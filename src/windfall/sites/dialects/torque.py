"""The dialect of Torque and its relatives: as `pbs`, but with other options for a job's size and for arrays."""

from __future__ import annotations

from windfall.sites.dialects.pbs import (
    REFUSALS,
    balance,
    balanced,
    cancel,
    cancelled,
    listed,
    listing,
    names,
    render,
    room,
    roomed,
    submit_torque as submit,
    submitted,
)

__all__ = ["REFUSALS", "balance", "balanced", "cancel", "cancelled", "listed", "listing", "names", "render", "room",
           "roomed", "submit", "submitted"]
