"""Switches the kernel's tiering on, and off to what was there before.

1. The state, with each setting before and wanted, is on the disk before the first setting changes.
2. A setting is put back only where it still says what was written, or where --off is forced.
3. The state goes when nothing is left to put back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headrace import DeniedError, Error, InvalidError
from headrace._tiering import damon, state
from headrace._tiering.files import Files
from headrace._tiering.plan import AUTOMATIC, Plan, Wish, plan
from headrace._tiering.setting import Setting
from headrace._tiering.state import State, boot_id, forget, load, locked, save

#: What became of a setting: what was there before is back; it was there all the time; it says what
#: somebody else wrote, and was left; its file is gone; the kernel refused.
OUTCOMES = ("put back", "unchanged", "left", "gone", "failed")


@dataclass(frozen=True)
class Undone:
    setting: Setting
    outcome: str
    now: str | None  # what the file said when it was looked at
    error: Error | None = None


@dataclass(frozen=True)
class Switched:
    """What was done: `settings` by --on, `undone` by --off; neither where nothing was to do."""

    notes: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    undone: tuple[Undone, ...] = ()


def on(files: Files, wish: Wish) -> Switched:
    """Raises, and nothing has changed. An Error that says so if not even that succeeded."""
    try:
        _check_root(files)
    except DeniedError:
        plan(files, wish)  # where this cannot do it, root cannot either
        raise
    with locked(files):
        notes = []
        if (old := load(files)) is not None and not old.left:
            if old.boot == boot_id(files):
                return _on_already(files, old, wish)
            notes.append("what was noted at an earlier boot is void, and forgotten")
            old = None
        made = plan(files, wish)
        notes += made.notes
        changes = tuple(made.changes)
        _check_writable(files, changes)
        if not changes:
            return Switched((*notes, "all of it is set already; nothing was changed"))
        written, more = _write(files, State(boot_id(files), wish.as_json(), changes), old)
        return Switched((*notes, *more), written)


def shown(files: Files, wish: Wish) -> tuple[State | None, Plan]:
    """What is on, if anything, and what --on would do; changes nothing."""
    old = load(files)
    if old is not None and (old.left or old.boot != boot_id(files)):
        old = None
    return (None, plan(files, wish)) if old is None else (old, Plan(old.settings, ()))


def off(files: Files, *, force: bool = False) -> Switched:
    """What was there before --on. Raises after all that could be put back was, if some was not."""
    if load(files) is None:
        return Switched(("it is not on; nothing to put back",))
    _check_root(files)
    with locked(files):
        old = load(files)
        if old is None:
            return Switched(("it is not on; nothing to put back",))
        if old.boot != boot_id(files):
            forget(files)
            return Switched((
                "what was noted is of an earlier boot, whose settings ended with it; forgotten",
            ))  # fmt: skip
        undone = _put_back(files, old.settings, complete=old.complete, force=force)
        failed = [each for each in undone if each.outcome == "failed"]
        left = [each for each in undone if each.outcome == "left"]
        if not failed and not left:
            forget(files)
            return Switched((), (), tuple(undone))
        if not failed:
            save(files, replace(old, settings=_kept(old, left), left=True))
            return Switched((), (), tuple(undone))
    assert failed[0].error is not None
    raise type(failed[0].error)(
        f"{failed[0].error}; not put back: {len(failed)} of {len(undone)}; once that is mended, "
        "headrace tier kernel --off again"
    )


def _kept(old: State, left: Iterable[Undone]) -> tuple[Setting, ...]:
    """What a later --off --force puts back. Kdamonds are told by all that was written for them."""
    files = {each.setting.file for each in left}
    whole = any(file.startswith(damon.KDAMONDS) for file in files)
    return tuple(
        each for each in old.settings
        if each.file in files or (whole and each.file.startswith(damon.KDAMONDS))
    )  # fmt: skip


def _check_root(files: Files) -> None:
    """That the folder of the state, or the nearest one above it, may be written to."""
    folder = files.path(state.FOLDER)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    name = str(folder.relative_to(files.root))
    if not files.writable(name):
        raise _not_root(f"/{name}")


def _check_writable(files: Files, settings: Iterable[Setting]) -> None:
    for setting in settings:
        if setting.before is not None and files.read(setting.file) is not None:
            if not files.writable(setting.file):
                raise _not_root(f"/{setting.file}")


def _restorable(files: Files, wanted: State) -> tuple[State, list[str]]:
    """Without the kernel's own choice of weights where the kernel, told what it says already,
    refuses: writing a weight ends that choice anyway. With a note then.
    """
    for setting in wanted.settings:
        if setting.file not in AUTOMATIC or setting.before is None:
            continue
        try:
            files.write(setting.file, setting.before)
        except Error:
            kept = tuple(each for each in wanted.settings if each is not setting)
            wanted = replace(wanted, settings=kept)
            save(files, wanted)
            return wanted, [
                "the kernel knows no bandwidths of this machine's nodes, so it cannot choose "
                f"weights again: --off puts back the weights, and /{setting.file} says false until "
                "the next boot"
            ]
    return wanted, []


def _not_root(what: str) -> Error:
    return DeniedError(
        f"{what} cannot be written: settings of the kernel are root's, and in most containers "
        "nobody's; use sudo on the host. Without root: --show, headrace tier status, and "
        "headrace::PageTier for one's own memory"
    )


def _on_already(files: Files, old: State, wish: Wish) -> Switched:
    if not old.complete:
        raise InvalidError(
            "an earlier --on was interrupted; headrace tier kernel --off puts back what it did"
        )
    for setting in old.settings:
        now = files.read(setting.file)
        if now != setting.wanted:
            raise InvalidError(
                f"it is on, but somebody else has set /{setting.file} to {now} since; headrace "
                "tier kernel --off first"
            )
    if old.wish != wish.as_json():
        raise InvalidError(
            "it is on already with other options; headrace tier kernel --off first"
        )
    return Switched(("it is on already; nothing was changed",))


def _write(
    files: Files, wanted: State, old: State | None
) -> tuple[tuple[Setting, ...], list[str]]:
    """All of the settings or none, and the state `old` then. Those written, and notes."""
    save(files, wanted)
    wanted, notes = _restorable(files, wanted)
    done: list[Setting] = []
    at: list[Setting] = []
    try:
        for setting in wanted.settings:
            at = [setting]
            files.write(setting.file, setting.wanted)
            done.append(setting)
            at = []
            _check_taken(files, setting)
        save(files, replace(wanted, complete=True))
    except Error as error:
        kept = _undo(files, done, old)
        told = "not all could be put back: headrace tier kernel --off" if kept else (
            "all else was put back"
        )  # fmt: skip
        raise type(error)(f"{error}; {told}") from None
    except BaseException:  # Ctrl-C: the kernel may have taken the one in hand
        _put_back(files, at, complete=False, force=False)
        _undo(files, done, old)
        raise
    return wanted.settings, notes


def _undo(files: Files, done: Sequence[Setting], old: State | None) -> bool:
    """Puts back what --on itself wrote just now. Whether some is left for --off, and so the state.
    """
    undone = _put_back(files, done, complete=False, force=True)
    if any(each.outcome == "failed" for each in undone):
        return True
    if old is None:
        forget(files)
    else:
        save(files, old)
    return False


def _check_taken(files: Files, setting: Setting) -> None:
    now = files.read(setting.file)
    if now != setting.wanted:
        raise InvalidError(
            f"the kernel was told {setting.wanted} in /{setting.file} and says {now}"
        )


def _put_back(
    files: Files, settings: Sequence[Setting], *, complete: bool, force: bool
) -> list[Undone]:
    """In the opposite order; each is tried, whatever became of the others."""
    foreign = not force and _is_foreign(files, settings, complete)
    undone = []
    for setting in reversed(settings):
        if setting.before is None:
            continue  # goes with what made it
        if foreign and setting.file.startswith(damon.KDAMONDS):
            undone.append(Undone(setting, "left", files.read(setting.file)))
        else:
            undone.append(_one_put_back(files, setting, force))
    return undone


def _one_put_back(files: Files, setting: Setting, force: bool) -> Undone:
    assert setting.before is not None
    try:
        now = files.read(setting.file)
        if now is None:
            return Undone(setting, "gone", now)
        if now == setting.before:
            return Undone(setting, "unchanged", now)
        if now != setting.wanted and not force:
            return Undone(setting, "left", now)
        files.write(setting.file, setting.before)
        _check_taken(files, replace(setting, wanted=setting.before))
    except Error as error:
        return Undone(setting, "failed", None, error)
    return Undone(setting, "put back", now)


def _is_foreign(files: Files, settings: Sequence[Setting], complete: bool) -> bool:
    """Whether the kdamonds that are there are somebody else's by now: one that runs, and each
    after a complete --on, says all of what was written.
    """
    ours = [setting for setting in settings if setting.file.startswith(damon.KDAMONDS)]
    made = [setting for setting in ours if setting.before is None]
    for setting in ours:
        now = files.read(setting.file)
        if setting.file == damon.COUNT:
            if now == setting.before:
                return False
            if now != setting.wanted:
                return True
        elif setting.file.endswith("/state") and (now == "on" or complete):
            base = setting.file.removesuffix("state")
            theirs = [each for each in made if each.file.startswith(base)]
            if any(files.read(each.file) != each.wanted for each in theirs):
                return True
    return False
