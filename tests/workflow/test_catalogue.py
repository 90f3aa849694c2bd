"""The user's catalogue of components: versions, and folders of files."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tests.workflow.library import abstract
from windfall.errors import BadInput, NotFound
from windfall.workflow.components.catalogue import Catalogue, gather
from windfall.workflow.yvetteml.program import ComponentLibrary


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return Catalogue(tmp_path / "components")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_changed_component_gets_a_new_version(catalogue: Catalogue, tmp_path: Path) -> None:
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


def test_removed_version_is_gone_and_its_number_stays_used(catalogue: Catalogue, tmp_path: Path) -> None:
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
def test_component_name_never_leads_out_of_the_catalogue(catalogue: Catalogue, name: str) -> None:
    assert name not in catalogue
    with pytest.raises(NotFound):
        catalogue.path(name)


def test_file_adds_several_components_and_implementations(catalogue: Catalogue, tmp_path: Path) -> None:
    impl = '<component type="impl" name="add_c" abstract="add"><source lang="C">r = a;</source></component>'
    file = written(tmp_path / "two.xml", f"<yml-query>{abstract('add', 'in real a')}{impl}</yml-query>")
    assert [entry.component.name for entry in catalogue.add(file)] == ["add", "add_c"]
    assert [each.name for each in ComponentLibrary(catalogue).implementations("add")] == ["add_c"]


def test_wrong_file_adds_no_component(catalogue: Catalogue, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        catalogue.add(written(tmp_path / "bad.xml", "<component type='abstract'/>"))
    with pytest.raises(BadInput, match="holds no component"):
        catalogue.add(written(tmp_path / "app.xml", "<application><graph/></application>"))
    assert list(catalogue) == []


def test_folder_gives_the_components_of_its_files(tmp_path: Path) -> None:
    written(tmp_path / "a.query", abstract("a"))
    written(tmp_path / "b.xml", abstract("b"))
    written(tmp_path / "notes.yml", "not: xml")
    written(tmp_path / "README", "text")
    assert sorted(gather([tmp_path])) == ["a", "b"]
    (tmp_path / "gone.xml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="cannot read .*gone.xml"):
        gather([tmp_path])
    (tmp_path / "gone.xml").unlink()
    written(tmp_path / "c.xml", abstract("a", "in real x"))
    with pytest.raises(BadInput, match="'a' is in"):
        gather([tmp_path])
    assert list(gather([tmp_path / "c.xml"])) == ["a"]


IMPL = '<component type="impl" name="{0}_c" abstract="{0}"><source lang="C">r = a;</source></component>'


@pytest.mark.parametrize("damage", ["<broken", "", "<component type='abstract' name='other'/>", "\0"])
def test_damaged_component_leaves_others_usable(
    catalogue: Catalogue, tmp_path: Path, damage: str
) -> None:
    for name in ("add", "sub"):
        catalogue.add(written(tmp_path / "file.xml", f"<yml-query>{abstract(name)}{IMPL.format(name)}</yml-query>"))
    written(catalogue.folder / "sub_c" / "1.xml", damage)
    shelf = ComponentLibrary(Catalogue(catalogue.folder))
    assert [each.name for each in shelf.implementations("add")] == ["add_c"]
    assert shelf.names() == ["add", "sub"] and list(shelf.damaged) == ["sub_c"]
    with pytest.raises(BadInput):
        shelf.find("sub_c")
    assert catalogue.remove("sub_c") == [1]


def test_catalogue_ignores_files_that_are_no_versions(catalogue: Catalogue, tmp_path: Path) -> None:
    catalogue.add(written(tmp_path / "add.xml", abstract("add")))
    for name in ("2", "3.xml.swp", "\u0663.xml", "x.xml"):
        written(catalogue.folder / "add" / name, "")
    (catalogue.folder / "add" / "7.xml").mkdir()
    assert catalogue.versions("add") == [1]
    assert catalogue.remove("add") == [1] and "add" not in catalogue
    assert (catalogue.folder / "add" / "2").exists()


@pytest.mark.parametrize("links", [True, False])
def test_several_add_and_remove_at_once(
    catalogue: Catalogue, tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each version that can be seen is whole, and nobody trips over another."""
    if not links:
        monkeypatch.setattr(os, "link", _no_links)
    wrong: list[BaseException] = []
    ended = threading.Event()

    def guarded(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:  # told below
            wrong.append(error)

    def add(number: int) -> None:
        file = tmp_path / f"add{number}.xml"
        for each in range(40):
            Catalogue(catalogue.folder).add(written(file, abstract("add", f"in real p{number}", f"in real q{each}")))

    def remove() -> None:
        while not ended.is_set():
            try:
                Catalogue(catalogue.folder).remove("add")
            except NotFound:
                time.sleep(0.001)

    def read() -> None:
        while not ended.is_set():
            try:
                assert len(Catalogue(catalogue.folder).entry("add").component.params) == 2
            except (NotFound, BadInput) as error:  # removed in between
                assert isinstance(error, NotFound) or "No such file" in error.message

    adding = [threading.Thread(target=guarded, args=(lambda n=n: add(n),)) for n in range(3)]
    others = [threading.Thread(target=guarded, args=(work,)) for work in ([remove, read] if links else [])]
    for thread in (*adding, *others):
        thread.start()
    for thread in adding:
        thread.join()
    ended.set()
    for thread in others:
        thread.join()
    assert not wrong, wrong
    assert [each for each in os.listdir(catalogue.folder) if each.startswith(".")] == []
    if not links:
        assert len(catalogue.versions("add")) == 120


def _no_links(*_: object) -> None:
    raise PermissionError("no links")


def test_a_file_of_many_is_read_once(catalogue: Catalogue, tmp_path: Path) -> None:
    many = "".join(abstract(f"c{number}", "in real a") + IMPL.format(f"c{number}") for number in range(400))
    catalogue.add(written(tmp_path / "many.xml", f"<yml-query>{many}</yml-query>"))
    began = time.process_time()
    assert len(ComponentLibrary(Catalogue(catalogue.folder)).names()) == 400
    assert time.process_time() - began < 5
