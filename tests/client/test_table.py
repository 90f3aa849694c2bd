"""The table of a bag in a notebook."""

from html.parser import HTMLParser

from windfall.model.spec import Bag, Sweep, Target, Values

EVIL = "<script>alert('x')</script>&\""


class _Seen(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text.append(data)


def _bag(client, items, argv):
    source = Sweep(axes=[Values(name="item", values=items)])
    number = client.submit(Bag(name=EVIL, targets=[Target(source=source, command=argv)]))
    client.wait(number)
    return number


def test_table_of_a_bag_escapes_foreign_text(client):
    number = _bag(client, [EVIL, "b" * 500], ["test", "{item}", "=", EVIL])
    table = client.table(number)
    seen = _Seen(table._repr_html_())
    assert set(seen.tags) == {"b", "p", "table", "tr", "th", "td"} and seen.tags.count("tr") == 3
    assert EVIL in seen.text and any(EVIL in text for text in seen.text if text.startswith(f"bag {number}"))
    assert "b" * 79 + "…" in seen.text
    assert {"succeeded", "failed", "1 succeeded, 1 failed"} <= set(seen.text)
    assert repr(table) == f"<bag {number} {EVIL}, failed: 1 succeeded, 1 failed>"
    assert [row["task"] for row in table.rows] == [0, 1] and table.bag["bag"] == number


def test_table_shows_only_the_first_results(client):
    number = _bag(client, [str(i) for i in range(30)], ["true", "{item}"])
    table = client.table(number, most=5)
    assert [row["task"] for row in table.rows] == list(range(5))
    assert "and 25 more tasks" in table._repr_html_()
    assert client.table(number, most=0).rows == []
