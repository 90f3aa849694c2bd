"""Which call does what."""

from __future__ import annotations

from windfall.data.blobs import MAX_BLOB
from windfall.model.spec import Bag, Part
from windfall.provision.server_link import TendReply, TendRequest
from windfall.server.calls.admin import AdminCalls
from windfall.server.calls.bags import BagCalls
from windfall.server.calls.blobs import BlobCalls
from windfall.server.calls.exchange import ExchangeCalls
from windfall.server.calls.logs import LiveOutput
from windfall.server.calls.provisioners import MAX_TEND, Tendings
from windfall.server.http import schema as s
from windfall.server.http.server import Route
from windfall.wire.messages import MAX_MESSAGE

MAX_SUBMISSION = 256 << 20
OCTETS = "application/octet-stream"
LINES = "application/x-ndjson"


def routes(bags: BagCalls, blobs: BlobCalls, exchanges: ExchangeCalls, live: LiveOutput, admin: AdminCalls,
           tendings: Tendings) -> list[Route]:
    return [*_users(bags), *_pilots(exchanges, live, admin), *_blobs(blobs), *_operation(admin), _tending(tendings)]


def _tending(t: Tendings) -> Route:
    return Route("POST", "/v1/tend", t.tend, limit=MAX_TEND, fast=True, takes=TendRequest, gives=TendReply,
                 says="what came of a site's orders in, orders out")


def _users(b: BagCalls) -> list[Route]:
    bag, big = "/v1/bags/{}", MAX_SUBMISSION
    return [
        Route("POST", "/v1/bags", b.submit, limit=big, takes=Bag, gives=s.Submitted, says="submit a bag"),
        Route("GET", "/v1/bags", b.list, says="list one's bags"),
        Route("GET", bag, b.show, gives=s.BagView, says="show a bag"),
        Route("GET", bag + "/spec", b.spec, gives=Bag, says="a bag as submitted"),
        Route("POST", bag + "/tasks", b.append, limit=big, takes=s.Append, gives=s.AppendedTasks,
              says="append tasks to an open bag"),
        Route("POST", bag + "/parts", b.append_part, limit=big, takes=Part, gives=s.AppendedTasks,
              says="append tasks of several targets, with what they wait for, to an open bag"),
        Route("POST", bag + "/extend", b.extend, limit=big, takes=s.Extend, gives=s.AppendedTasks,
              says="append tasks to a closed bag, which runs again"),
        Route("GET", bag + "/appended", b.appended, gives=s.AppendedPage,
              says="sources appended since it was submitted"),
        Route("POST", bag + "/close", b.close, takes=s.EmptyBody, gives=s.BagView, says="close a bag to more tasks"),
        Route("POST", bag + "/pause", b.pause, takes=s.EmptyBody, gives=s.BagView, says="start no more of its tasks"),
        Route("POST", bag + "/unpause", b.unpause, takes=s.EmptyBody, gives=s.BagView, says="go on"),
        Route("POST", bag + "/budget", b.set_budget, takes=s.NewBudget, gives=s.BagView, says="change its budget"),
        Route("GET", bag + "/policy", b.policy, gives=s.PolicyView, says="its expressions, and which hosts match"),
        Route("POST", bag + "/policy", b.set_policy, takes=s.NewPolicy, gives=s.PolicyView, says="change some of them"),
        Route("GET", bag + "/hosts", b.hosts, gives=s.HostViews, says="what its policies make of each host"),
        Route("POST", bag + "/remove", b.remove, takes=s.EmptyBody, gives=s.BagView,
              says="forget a bag and its results"),
        Route("POST", bag + "/cancel", b.cancel, limit=64 << 20, takes=s.Selection, gives=s.TaskCount,
              says="cancel tasks"),
        Route("POST", bag + "/retry", b.retry, limit=64 << 20, takes=s.Selection, gives=s.TaskCount,
              says="try tasks again"),
        Route("GET", bag + "/results", b.results, gives=s.ResultPage, says="one row per ended task"),
        Route("GET", bag + "/statistics", b.statistics, gives=s.Statistics, says="what a bag took, in numbers"),
        Route("GET", bag + "/failures", b.failures, gives=s.Failures, says="why tasks stand failed, cause by cause"),
        Route("GET", bag + "/running", b.running, gives=s.Running, says="tasks that have been started, longest first"),
        Route("GET", bag + "/tasks/{}", b.task, gives=s.TaskView, says="one task and its attempts"),
        Route("GET", bag + "/tasks/{}/spec", b.task_spec, says="what a pilot is told of a task"),
        Route("GET", bag + "/tasks/{}/log", b.log, gives=OCTETS, says="captured output"),
        Route("GET", bag + "/explain", b.explain, says="why it is not running"),
        Route("GET", bag + "/watch", b.watch, gives=LINES, says="follow a bag"),
        Route("GET", "/v1/hosts", b.hosts, gives=s.HostViews, says="the hosts that serve one, as expressions see them"),
        Route("GET", "/v1/usage", b.usage, gives=s.Usage, says="what files take, and the quota"),
        Route("GET", "/v1/events", b.events, gives=LINES, says="follow all of one's bags"),
    ]


def _pilots(x: ExchangeCalls, live: LiveOutput, a: AdminCalls) -> list[Route]:
    return [
        Route("POST", "/v1/enrol", x.enrol, "enrol", takes=s.Enrol, gives=s.Enrolled, says="a pilot introduces itself"),
        Route("POST", "/v1/exchange", x.exchange, "pilot", MAX_MESSAGE, fast=True, takes=s.Exchange,
              gives=s.ExchangeResponse, says="send reports, fetch grants"),
        Route("POST", "/v1/attempts/{}/output", live.receive, "pilot", 4 << 20, takes=OCTETS, gives=s.OutputWanted,
              says="a piece of output that somebody watches"),
        Route("GET", "/v1/pilot.pyz", a.bundle, "any", gives=OCTETS, says="the pilot"),
    ]


def _blobs(b: BlobCalls) -> list[Route]:
    path = "/v1/blobs/{}"
    return [
        Route("HEAD", path, b.head, "user pilot", says="is it there, or how much of it"),
        Route("GET", path, b.get, "user pilot", gives=OCTETS, says="file content, or a range of it"),
        Route("PUT", path, b.put, "user pilot", MAX_BLOB, streaming=True, takes=OCTETS,
              says="send file content, or a piece"),
    ]


def _operation(a: AdminCalls) -> list[Route]:
    return [
        Route("POST", "/v1/tokens", a.make_token, takes=s.NewToken, gives=s.TokenMade, says="make a token"),
        Route("GET", "/v1/tokens", a.tokens, says="list tokens, not their secrets"),
        Route("DELETE", "/v1/tokens/{}", a.revoke, says="revoke a token"),
        Route("GET", "/v1/allowances", a.allowances, gives=s.Allowances, says="what may be used in a month, and was"),
        Route("POST", "/v1/allowances", a.set_allowance, "admin", takes=s.NewAllowance, gives=s.Allowances,
              says="say what a user may use in a month"),
        Route("POST", "/v1/weights", a.set_weight, "admin", takes=s.NewWeight, gives=s.Allowances,
              says="say what part of shared sites a user has"),
        Route("GET", "/v1/sites", a.sites, says="list sites"),
        Route("POST", "/v1/sites", a.add_site, takes=s.NewSite, says="add a site"),
        Route("GET", "/v1/sites/{}", a.site, says="show a site"),
        Route("POST", "/v1/sites/{}/drain", a.drain_site, takes=s.Draining, says="send nothing more to a site"),
        Route("POST", "/v1/sites/{}/undrain", a.undrain_site, takes=s.EmptyBody, says="use a site again"),
        Route("POST", "/v1/sites/{}/share", a.share_site, "admin", takes=s.Sharing, says="let others use a site, too"),
        Route("DELETE", "/v1/sites/{}", a.remove_site, says="forget a site that has no pilots"),
        Route("POST", "/v1/trials", a.try_site, takes=s.NewTrial, gives=s.TrialMade, says="let a trial of a site in"),
        Route("GET", "/v1/pilots", a.pilots, says="list pilots"),
        Route("POST", "/v1/pilots/{}/gone", a.gone, takes=s.EmptyBody, says="evidence that a pilot is dead"),
        Route("GET", "/health", a.health, "", gives=s.Health, says="is it up"),
        Route("GET", "/metrics", a.metrics, "admin", gives="text/plain", says="numbers for Prometheus"),
        Route("GET", "/v1/openapi.json", a.openapi, "any", says="this document"),
    ]
