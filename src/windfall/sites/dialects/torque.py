"""Torque, and what speaks like it: `pbs`, but for how a job's size and an array are asked for."""

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
