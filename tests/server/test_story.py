"""The story of a task over HTTP: pages, owners, and commits that go on while a story is read."""

import asyncio
from urllib.parse import quote

import pytest
from server_tools import Pilot, sweep

from windfall.core.messages import facts as f
from windfall.core.read.story import Protagonist
from windfall.server.views.story_pages import LARGEST_ROW, StoryPages
from windfall.store import codec
from windfall.store.journal import Budget, Journal


def read(client, bag, task, limit=1000):
    lines, after, pages = [], "", 0
    while after is not None:
        more = f"&after={quote(after, safe='')}" if after else ""
        page = client.call("GET", f"/v1/bags/{bag}/tasks/{task}/story?limit={limit}{more}").body
        lines += page["lines"]
        after, pages = page["next"], pages + 1
        assert page["since"] and page["position"]
    return lines, pages


def test_story_names_pilot_site_and_host_of_every_attempt(client):
    bag = client.submit(sweep(3))
    pilot = Pilot(client)
    granted = pilot.get(want=3)
    pilot.finish([attempt for attempt, _ in granted])
    client.call("POST", f"/v1/bags/{bag}/policy", {"policy": {"rank": "Host.Cores"}})
    lines, _ = read(client, bag, 1)
    assert [line["kind"] for line in lines] == ["submitted", "granted", "finished", "policy"]
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    assert lines[0]["attempt"] is None and lines[0]["site"] is None
    for line in lines[1:3]:
        assert (line["attempt"], line["site"], line["host"]) == (granted[1][0], "local", "host") and line["pilot"]
    assert "rank = Host.Cores" in lines[3]["text"]


def test_story_in_small_pages_has_the_same_lines(client):
    bag = client.submit(sweep(4, retries=3))
    pilot = Pilot(client, cores=8)
    granted = pilot.get(want=4)
    pilot.exchange(reports=[{"a": attempt, "o": "failed", "why": "exit", "exit": 1} for attempt, _ in granted])
    whole, one = read(client, bag, 2)
    pieces, many = read(client, bag, 2, limit=1)
    assert pieces == whole and one == 1 and many >= 4
    assert [line["kind"] for line in whole][:3] == ["submitted", "granted", "ended"]


def test_story_belongs_to_the_owner_of_the_bag(client):
    bag = client.submit(sweep(2))
    bob = client.token_for("user", user="bob")["token"]
    assert client.call("GET", f"/v1/bags/{bag}/tasks/0/story", token=bob).status == 404
    assert client.call("GET", f"/v1/bags/{bag}/tasks/2/story").status == 404


@pytest.mark.parametrize("cursor", ["x", "1", "1/2", "1/2-3/x", "1//" + "9" * 40, "-5//", "1/" + "1-1." * 5_000 + "/"])
def test_cursor_that_no_page_gave_is_refused(client, cursor):
    bag = client.submit(sweep(1))
    reply = client.call("GET", f"/v1/bags/{bag}/tasks/0/story?after={quote(cursor, safe='')}")
    assert reply.status == 400 and "cursor" in reply.body["error"]["message"]


# --- journals that do not have all ---------------------------------------------------------------------------------


def story_of(journal, begins, cursor=""):
    async def ask():
        pages = StoryPages(journal)
        try:
            return await pages.page(Protagonist(1, 0, 0), begins, cursor, 100)
        finally:
            pages.stop()

    return asyncio.run(ask())


@pytest.fixture
def journal(tmp_path):
    opened = Journal.open(tmp_path / "journal.db")
    yield opened
    opened.close()


def paused(at):
    return codec.encode([f.BagPaused(at, 1, True, "ann")])


def test_story_says_from_when_on_the_journal_reaches_back(journal):
    for at in (100, 200, 300):
        journal.append(at, paused(at))
    assert [line.at for line in story_of(journal, 100).lines] == [100, 200, 300]
    assert [line.at for line in story_of(journal, 150).lines] == [200, 300]
    journal.save_snapshot(3, b"", {})
    journal.rewrite(1, lambda body: None, Budget(10))
    page = story_of(journal, 100)
    assert page.since == 200 and [line.kind for line in page.lines] == ["begins", "paused", "paused"]
    assert page.lines[0].at == 200 and page.next == ""


def test_story_names_a_commit_that_is_too_large_to_search(journal):
    journal.append(100, codec.encode([f.TasksAppended(100, 1, 0, 0, 1, "", bytes(LARGEST_ROW))]))
    journal.append(200, paused(200))
    unread, line = story_of(journal, 100).lines
    assert (unread.kind, unread.at, line.kind) == ("unread", 100, "paused") and "4.19 MB" in unread.text


def test_story_of_an_empty_journal_has_no_lines(journal):
    assert story_of(journal, 100) == ([], "", 0)


def test_many_rows_of_one_time_all_belong_to_the_story(journal):
    for at in [100] * 300 + [200] * 300:
        journal.append(at, paused(at))
    page = story_of(journal, 200)
    assert len(page.lines) == 100 and page.next.startswith("400/")
    assert {line.at for line in page.lines} == {200}
    assert len(story_of(journal, 200, page.next).lines) == 100
