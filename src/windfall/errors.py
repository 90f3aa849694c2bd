"""The tree of errors.

Every error says what happened, whether trying again helps, and what to do next.  This file ships with the pilot, so it
keeps to the standard library and to the syntax of Python 3.6.

    WindfallError
     ├─ BadInput              the user's file or argument is wrong           exit 2, HTTP 400
     │   ├─ Mistakes          several at once, each with its place           exit 2, HTTP 400
     │   └─ TooLarge          it is well-formed but over a stated bound      exit 2, HTTP 413
     ├─ Refused               the server understood and says no              exit 3
     │   ├─ Unauthorised      no token, or one that is not valid any more    HTTP 401
     │   ├─ Forbidden         a valid token of the wrong scope               HTTP 403
     │   ├─ NotFound          absent, or not yours: one answer for both      HTTP 404
     │   ├─ Conflict          not possible in the present state              HTTP 409
     │   ├─ VersionMismatch   the two ends share no protocol version         HTTP 426
     │   ├─ Overloaded        too many requests at once; try again           HTTP 429
     │   ├─ Unavailable       starting, stopping or reconciling; try again   HTTP 503
     │   ├─ DiskFull          no room for new work; results still taken      HTTP 507
     │   └─ OverQuota         the owner's disk allowance is used up          HTTP 507
     ├─ NoServer              nothing answers at the address                 exit 3
     ├─ Unwritable            a file cannot be written here                  exit 3
     ├─ SiteError             something failed at a site                     exit 3
     │   ├─ SiteRefused       its batch system or its SSH server says no; `kind` says why
     │   └─ SiteUnreachable   no answer: the site may have done what was asked
     ├─ TrustError            certificate or file permissions are wrong      exit 3
     └─ StoreError            the data on disk cannot be used                exit 3
         ├─ StoreLocked       another server has it open
         ├─ LocksUnreliable   the file system does not keep locks
         ├─ StoreTooNew       written by a later version
         ├─ StoreCorrupt      does not read back as it was written
         ├─ ViewsDamaged      the same of the views, which are made again from the journal
         └─ FlushFailed       the disk refused a flush; the process must end
"""


class WindfallError(Exception):
    """Base of the tree: `message` says what happened, `hint` what to do next."""

    code = "error"
    status = 500
    exit_code = 1
    retry = False  # may the same request succeed later?

    def __init__(self, message, hint="", retry_after=None):
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.retry_after = retry_after

    def __str__(self):
        return "{}\n  hint: {}".format(self.message, self.hint) if self.hint else self.message

    def to_wire(self):
        body = {"code": self.code, "message": self.message, "hint": self.hint, "retry": self.retry}
        if self.retry_after is not None:
            body["retry_after"] = self.retry_after
        return {"error": body}


class BadInput(WindfallError):
    """A mistake in the user's file or argument; `where` is "file:line" if known, `text` the line itself."""

    code = "bad-input"
    status = 400
    exit_code = 2

    def __init__(self, message, hint="", where="", text=""):
        super().__init__(message, hint)
        self.where = where
        self.text = text

    def __str__(self):
        lines = ["{}: {}".format(self.where, self.message) if self.where else self.message]
        if self.text:
            lines.append("    " + self.text)
        if self.hint:
            lines.append("  hint: " + self.hint)
        return "\n".join(lines)

    def to_wire(self):
        body = super().to_wire()
        body["error"].update(where=self.where, text=self.text)
        return body


class Mistakes(BadInput):
    """All mistakes of one file; `each` holds a BadInput per mistake, with its own place and hint."""

    code = "mistakes"

    def __init__(self, message="", hint="", each=(), where=""):
        super().__init__(message, hint, where)
        self.each = tuple(each)

    def __str__(self):
        return "\n".join([str(error) for error in self.each] + [super().__str__()])

    def to_wire(self):
        body = super().to_wire()
        body["error"]["mistakes"] = [error.to_wire()["error"] for error in self.each]
        return body


class TooLarge(BadInput):
    code = "too-large"
    status = 413


class Refused(WindfallError):
    code = "refused"
    status = 403
    exit_code = 3


class Unauthorised(Refused):
    code = "unauthorised"
    status = 401


class Forbidden(Refused):
    code = "forbidden"
    status = 403


class NotFound(Refused):
    code = "not-found"
    status = 404


class Conflict(Refused):
    code = "conflict"
    status = 409


class VersionMismatch(Refused):
    code = "version-mismatch"
    status = 426


class Overloaded(Refused):
    code = "overloaded"
    status = 429
    retry = True


class Unavailable(Refused):
    code = "unavailable"
    status = 503
    retry = True


class DiskFull(Refused):
    code = "disk-full"
    status = 507
    retry = True


class OverQuota(Refused):
    code = "over-quota"
    status = 507


class NoServer(WindfallError):
    code = "no-server"
    status = 502
    exit_code = 3
    retry = True


class TimedOut(WindfallError):
    """A command that waits was told to wait no longer; what it waited for goes on."""

    exit_code = 124


class Unwritable(WindfallError):
    code = "unwritable"
    exit_code = 3


class SiteError(WindfallError):
    code = "site"
    status = 502
    exit_code = 3


class SiteRefused(SiteError):
    """A site's refusal; `windfall.sites.dialects.text` lists the kinds."""

    code = "site-refused"

    def __init__(self, message, hint="", retry_after=None, kind="other"):
        super().__init__(message, hint, retry_after)
        self.kind = kind


class SiteUnreachable(SiteError):
    """Silence from a site, which may have done what was asked: list what is there before asking again."""

    code = "site-unreachable"
    retry = True


class TrustError(WindfallError):
    code = "trust"
    status = 495
    exit_code = 3


class StoreError(WindfallError):
    code = "store"
    exit_code = 3


class StoreLocked(StoreError):
    code = "store-locked"


class LocksUnreliable(StoreError):
    code = "locks-unreliable"


class StoreTooNew(StoreError):
    code = "store-too-new"


class StoreCorrupt(StoreError):
    code = "store-corrupt"


class ViewsDamaged(StoreError):
    code = "views-damaged"


class FlushFailed(StoreError):
    code = "flush-failed"


def _tree(base):
    yield base
    for sub in base.__subclasses__():
        for cls in _tree(sub):
            yield cls


def with_code(code):
    """Return the class of a code; the root of the tree for an unknown code."""
    for cls in _tree(WindfallError):
        if cls.code == code:
            return cls
    return WindfallError


def from_wire(body, status=500):
    """Return the error a server sent, of the class that the server raised."""
    info = body.get("error") if isinstance(body, dict) else None
    if not isinstance(info, dict):
        return WindfallError("the server answered {} without saying why".format(status))
    error = with_code(info.get("code"))(str(info.get("message", "")), str(info.get("hint", "")))
    error.retry_after = info.get("retry_after")
    if isinstance(error, BadInput):
        error.where = str(info.get("where", ""))
        error.text = str(info.get("text", ""))
    if isinstance(error, Mistakes) and isinstance(info.get("mistakes"), list):
        each = [from_wire({"error": one}) for one in info["mistakes"] if isinstance(one, dict)]
        error.each = tuple(one for one in each if isinstance(one, BadInput) and not isinstance(one, Mistakes))
    return error
