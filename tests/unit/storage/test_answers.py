"""Answers to inputs: whose they are, and which of several counts."""

from __future__ import annotations

from pathlib import Path

from dragoman.config.load import approvals
from dragoman.model import Input, Origin, ServerSpec, Settings, Stdio
from dragoman.storage.answers import forget_answers, keep_answers, kept_answers
from dragoman.storage.files import data_folder
from dragoman.trust.gate import Gate


def test_each_side_and_each_user_has_answers_of_its_own() -> None:
    keep_answers({"key": "mine"})
    keep_answers({"key": "theirs"}, "/project")
    keep_answers({"key": "ann's"}, user="ann")
    assert (kept_answers(), kept_answers("/project")) == ({"key": "mine"}, {"key": "theirs"})
    assert (kept_answers(user="ann"), kept_answers(user="bob")) == ({"key": "ann's"}, {})
    assert forget_answers(["key", "other"])
    assert not forget_answers(["key"])
    assert (kept_answers(), kept_answers("/project")) == ({}, {"key": "theirs"})
    assert (data_folder() / "answers.json").stat().st_mode & 0o077 == 0


def test_a_file_that_is_not_ours_has_no_answers() -> None:
    keep_answers({"key": "mine"})
    (data_folder() / "answers.json").write_text('{"": {"key": 1, "b": "x"}, "p": 3}', "utf-8")
    assert kept_answers() == {"b": "x"}
    (data_folder() / "answers.json").write_text("[]", "utf-8")
    assert kept_answers() == {}


def test_a_given_answer_counts_more_than_a_kept_one_and_that_more_than_the_default() -> None:
    mine = ServerSpec("one", Stdio("x", env={"K": "${input:key}"}), origin=Origin(source="f", scope="user"))
    settings = Settings(servers=[mine], inputs=[Input(id="key", default="usual", scope="user")])
    gate = Gate(settings, root=str(Path.cwd()), trust_project=False, approvals=approvals)
    assert gate.answers(mine, settings, {}) == {"key": "usual"}
    keep_answers({"key": "kept-secret"})
    assert gate.answers(mine, settings, {}) == {"key": "kept-secret"}
    assert "kept-secret" not in gate.redactor.mask("it is kept-secret")
    assert gate.answers(mine, settings, {"key": "given"}) == {"key": "given"}
    theirs = mine.replace(origin=Origin(source="f", scope="project"))
    assert gate.answers(theirs, settings.replace(servers=[theirs]), {}) == {}
    of_ann = Gate(settings, program=gate, user="ann")
    assert of_ann.answers(mine, settings, {}) == {"key": "usual"}
