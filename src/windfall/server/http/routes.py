"""The table of routes: path, scope, bounds and handler of every API call."""

from __future__ import annotations

from typing import NamedTuple

from windfall.data.blobs import MAX_BLOB
from windfall.model.spec import Bag, Part
from windfall.provision.server_link import TendReply, TendRequest
from windfall.server.calls.admin import AdminCalls
from windfall.server.calls.bags import BagCalls
from windfall.server.calls.blobs import BlobCalls
from windfall.server.calls.exchange import ExchangeCalls
from windfall.server.calls.logs import LiveOutput
from windfall.server.calls.provisioners import MAX_TEND, ProvisionerCalls
from windfall.server.http import schema as s
from windfall.server.http.server import Route
from windfall.wire.messages import MAX_MESSAGE

MAX_SUBMISSION = 256 << 20
MAX_SELECTION = 1 << 20  # 50,000 ranges of tasks
OCTETS = "application/octet-stream"
LINES = "application/x-ndjson"


class Calls(NamedTuple):
    """The handlers of all API calls."""

    bags: BagCalls
    blobs: BlobCalls
    exchanges: ExchangeCalls
    live: LiveOutput
    admin: AdminCalls
    provisioners: ProvisionerCalls


def routes(calls: Calls) -> list[Route]:
    table = [*_users(calls.bags), *_pilots(calls.exchanges, calls.live, calls.admin), *_blobs(calls.blobs),
             *_operation(calls.admin), _provisioners(calls.provisioners)]
    return [route if route.method in ("POST", "PUT") else route._replace(limit=0) for route in table]


def _provisioners(t: ProvisionerCalls) -> Route:
    return Route("POST", "/v1/tend", t.tend, limit=MAX_TEND, fast=True, takes=TendRequest, gives=TendReply,
                 summary="send what became of a site's orders, fetch new orders")


def _users(b: BagCalls) -> list[Route]:
    bag, big = "/v1/bags/{}", MAX_SUBMISSION
    return [
        Route("POST", "/v1/bags", b.submit, limit=big, takes=Bag, gives=s.Submitted, summary="submit a bag"),
        Route("GET", "/v1/bags", b.list, summary="list your bags"),
        Route("GET", bag, b.show, gives=s.BagView, summary="show a bag"),
        Route("GET", bag + "/spec", b.spec, gives=Bag, summary="show a bag as submitted"),
        Route("POST", bag + "/tasks", b.append, limit=big, takes=s.Append, gives=s.AppendedTasks,
              summary="append tasks to an open bag"),
        Route("POST", bag + "/parts", b.append_part, limit=big, takes=Part, gives=s.AppendedTasks,
              summary="append tasks of several targets, with what they wait for, to an open bag"),
        Route("POST", bag + "/extend", b.extend, limit=big, takes=s.Extend, gives=s.AppendedTasks,
              summary="append tasks to a closed bag, which runs again"),
        Route("GET", bag + "/appended", b.appended, gives=s.AppendedPage,
              summary="list the sources appended since the bag was submitted"),
        Route("POST", bag + "/close", b.close, takes=s.EmptyBody, gives=s.BagView, summary="close a bag to more tasks"),
        Route("POST", bag + "/pause", b.pause, takes=s.EmptyBody, gives=s.BagView,
              summary="start no more tasks of a bag"),
        Route("POST", bag + "/unpause", b.unpause, takes=s.EmptyBody, gives=s.BagView,
              summary="start tasks of a paused bag again"),
        Route("POST", bag + "/budget", b.set_budget, takes=s.NewBudget, gives=s.BagView,
              summary="change a bag's budget"),
        Route("GET", bag + "/policy", b.policy, gives=s.PolicyView,
              summary="show a bag's expressions, and how many hosts match"),
        Route("POST", bag + "/policy", b.set_policy, takes=s.NewPolicy, gives=s.PolicyView,
              summary="change a bag's expressions"),
        Route("GET", bag + "/hosts", b.hosts, gives=s.HostViews,
              summary="list the hosts, with a bag's match and rank of each"),
        Route("POST", bag + "/remove", b.remove, takes=s.EmptyBody, gives=s.BagView,
              summary="remove a bag and its results"),
        Route("POST", bag + "/cancel", b.cancel, limit=MAX_SELECTION, takes=s.Selection, gives=s.TaskCount,
              summary="cancel tasks"),
        Route("POST", bag + "/retry", b.retry, limit=MAX_SELECTION, takes=s.Selection, gives=s.TaskCount,
              summary="retry tasks"),
        Route("POST", bag + "/rerun", b.rerun, limit=big, takes=s.Rerun, gives=s.RerunDone,
              summary="run again what failed or changed, with the bag as its files say now"),
        Route("GET", bag + "/results", b.results, gives=s.ResultPage, summary="list results, one row per ended task"),
        Route("GET", bag + "/statistics", b.statistics, gives=s.Statistics, summary="show a bag's statistics"),
        Route("GET", bag + "/failures", b.failures, gives=s.Failures,
              summary="list the causes of failure, with their tasks"),
        Route("GET", bag + "/running", b.running, gives=s.Running, summary="list the started tasks, longest first"),
        Route("GET", bag + "/tasks/{}", b.task, gives=s.TaskView, summary="show a task and its attempts"),
        Route("GET", bag + "/tasks/{}/spec", b.task_spec, summary="show a task as its pilot reads it"),
        Route("GET", bag + "/tasks/{}/story", b.story, gives=s.StoryPage,
              summary="list the facts that touched a task, in order"),
        Route("GET", bag + "/tasks/{}/log", b.log, gives=OCTETS, summary="show or follow a task's output"),
        Route("GET", bag + "/explain", b.explain, summary="explain why a bag or task is not running"),
        Route("GET", bag + "/watch", b.watch, gives=LINES, summary="follow a bag"),
        Route("GET", "/v1/hosts", b.hosts, gives=s.HostViews, summary="list your hosts as expressions see them"),
        Route("GET", "/v1/usage", b.usage, gives=s.Usage, summary="show the bytes of your files, and your quota"),
        Route("POST", "/v1/usage/free", b.collect, takes=s.EmptyBody, gives=s.Freed,
              summary="delete your files that no bag needs"),
        Route("GET", "/v1/events", b.events, gives=LINES, summary="follow all your bags"),
    ]


def _pilots(x: ExchangeCalls, live: LiveOutput, a: AdminCalls) -> list[Route]:
    return [
        Route("POST", "/v1/enrol", x.enrol, "enrol", takes=s.Enrol, gives=s.Enrolled, summary="enrol a pilot"),
        Route("POST", "/v1/exchange", x.exchange, "pilot", MAX_MESSAGE, fast=True, takes=s.Exchange,
              gives=s.ExchangeResponse, summary="send reports, fetch grants"),
        Route("POST", "/v1/attempts/{}/output", live.receive, "pilot", 1 << 20, takes=OCTETS, gives=s.OutputWanted,
              summary="send a piece of output that a user watches"),
        Route("GET", "/v1/pilot.pyz", a.bundle, "any", gives=OCTETS, summary="fetch the pilot's file"),
    ]


def _blobs(b: BlobCalls) -> list[Route]:
    path = "/v1/blobs/{}"
    return [
        Route("HEAD", path, b.head, "user pilot",
              summary="ask whether a blob is complete, or how much of it has arrived"),
        Route("GET", path, b.get, "user pilot", gives=OCTETS, summary="fetch a blob, or a range of it"),
        Route("PUT", path, b.put, "user pilot", MAX_BLOB, streaming=True, takes=OCTETS,
              summary="send a blob, or a piece of it"),
    ]


def _operation(a: AdminCalls) -> list[Route]:
    return [
        Route("POST", "/v1/tokens", a.make_token, takes=s.NewToken, gives=s.TokenMade, summary="make a token"),
        Route("GET", "/v1/tokens", a.tokens, summary="list tokens, without their secrets"),
        Route("DELETE", "/v1/tokens/{}", a.revoke, summary="revoke a token"),
        Route("GET", "/v1/allowances", a.allowances, gives=s.Allowances,
              summary="list the users' monthly allowances and use"),
        Route("POST", "/v1/allowances", a.set_allowance, "admin", takes=s.NewAllowance, gives=s.Allowances,
              summary="set a user's monthly allowance"),
        Route("POST", "/v1/weights", a.set_weight, "admin", takes=s.NewWeight, gives=s.Allowances,
              summary="set a user's share of shared sites"),
        Route("GET", "/v1/sites", a.sites, summary="list sites"),
        Route("POST", "/v1/sites", a.add_site, takes=s.NewSite, summary="add a site"),
        Route("GET", "/v1/sites/{}", a.site, summary="show a site"),
        Route("POST", "/v1/sites/{}/drain", a.drain_site, takes=s.Draining,
              summary="drain a site: start no more pilots and tasks there"),
        Route("POST", "/v1/sites/{}/undrain", a.undrain_site, takes=s.EmptyBody, summary="use a site again"),
        Route("POST", "/v1/sites/{}/share", a.share_site, "admin", takes=s.Sharing,
              summary="share a site with other users"),
        Route("DELETE", "/v1/sites/{}", a.remove_site, summary="remove a site that has no pilots"),
        Route("POST", "/v1/trials", a.try_site, takes=s.NewTrial, gives=s.TrialMade,
              summary="make the tokens of a site trial"),
        Route("GET", "/v1/pilots", a.pilots, summary="list pilots"),
        Route("POST", "/v1/pilots/{}/gone", a.gone, takes=s.EmptyBody, summary="report that a pilot is dead"),
        Route("HEAD", "/health", a.health, "", gives=s.Health, summary="ask whether the server answers"),
        Route("GET", "/health", a.health, "", gives=s.Health, summary="ask whether the server is up"),
        Route("GET", "/metrics", a.metrics, "admin", gives="text/plain", summary="fetch figures for Prometheus"),
        Route("GET", "/v1/openapi.json", a.openapi, "any", summary="fetch this document"),
    ]
