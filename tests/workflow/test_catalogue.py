"""The user's catalogue of components: versions, and folders of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workflow.library import abstract
from windfall.errors import BadInput, NotFound
from windfall.workflow.catalogue import Catalogue, gather


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return Catalogue(tmp_path / "components")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_versions(catalogue: Catalogue, tmp_path: Path) -> None:
    assert list(catalogue) == [] and len(catalogue) == 0 and "add" not in catalogue
    file = written(tmp_path / "add.xml", abstract("add", "out real r", "in real a"))
    (entry,) = catalogue.add(file)
    assert (entry.component.name, entry.version, entry.new) == ("add", 1, True)
    assert catalogue.add(file)[0][1:] == (1, False)
    written(file, abstract("add", "out real r", "in real a", "in real b"))
    assert catalogue.add(file)[0][1:] == (2, True)
    assert len(catalogue["add"].params) == 3
    assert len(catalogue.entry("add", 1).component.params) == 2
    assert catalogue.versions("add") == [1, 2] and list(catalogue) == ["add"]


def test_removing(catalogue: Catalogue, tmp_path: Path) -> None:
    file = tmp_path / "add.xml"
    for n in (1, 2, 3):
        catalogue.add(written(file, abstract("add", *(f"in real p{k}" for k in range(n)))))
    assert catalogue.remove("add", 2) == [2] and catalogue.versions("add") == [1, 3]
    with pytest.raises(NotFound, match="no version 2"):
        catalogue.remove("add", 2)
    assert catalogue.add(written(file, abstract("add")))[0].version == 4
    assert catalogue.remove("add") == [1, 3, 4] and "add" not in catalogue
    with pytest.raises(NotFound, match="no component 'add'"):
        catalogue.remove("add")


@pytest.mark.parametrize("name", ["../secret", "a/b", "", ".", "x" * 200])
def test_names_lead_nowhere_else(catalogue: Catalogue, name: str) -> None:
    assert name not in catalogue
    with pytest.raises(NotFound):
        catalogue.path(name)


def test_several_in_one_file_and_implementations(catalogue: Catalogue, tmp_path: Path) -> None:
    impl = '<component type="impl" name="add_c" abstract="add"><source lang="C">r = a;</source></component>'
    file = written(tmp_path / "two.xml", f"<yml-query>{abstract('add', 'in real a')}{impl}</yml-query>")
    assert [entry.component.name for entry in catalogue.add(file)] == ["add", "add_c"]
    assert [each.name for each in catalogue.implementations("add")] == ["add_c"]


def test_what_is_wrong_is_not_added(catalogue: Catalogue, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        catalogue.add(written(tmp_path / "bad.xml", "<component type='abstract'/>"))
    with pytest.raises(BadInput, match="holds no component"):
        catalogue.add(written(tmp_path / "app.xml", "<application><graph/></application>"))
    assert list(catalogue) == []


def test_a_folder(tmp_path: Path) -> None:
    written(tmp_path / "a.query", abstract("a"))
    written(tmp_path / "b.xml", abstract("b"))
    written(tmp_path / "notes.yml", "not: xml")
    written(tmp_path / "README", "text")
    assert sorted(gather([tmp_path])) == ["a", "b"]
    written(tmp_path / "c.xml", abstract("a", "in real x"))
    with pytest.raises(BadInput, match="'a' is in"):
        gather([tmp_path])
    assert list(gather([tmp_path / "c.xml"])) == ["a"]
