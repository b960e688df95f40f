# SPDX-License-Identifier: Apache-2.0
"""Switches the kernel's tiering on, and off to the settings from before.

1. The state, with each setting before and wanted, is on the disk before the first setting changes.
2. A setting is restored only if it still has the written value, or if --off is forced. A setting
that was once left to another program is left until then, whatever its value. 3. A setting is
recorded until it is restored for certain; one that cannot be read or written stays recorded. 4. The
state is removed when nothing is left to restore.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from headrace import AbsentError, DeniedError, Error, InvalidError
from headrace._core import KDAMONDS, STATE_FOLDER, WEIGHTS
from headrace._core import HostFiles as Files
from headrace._tiering import damon, state
from headrace._tiering.plan import AUTOMATIC, Plan, Wish, plan, weights_of
from headrace._tiering.setting import Setting
from headrace._tiering.state import State, boot_id, check_host, forget, load, locked, save

#: Largest number of files that an error lists.
_LISTED = 4


@dataclass(frozen=True)
class Undone:
    """A setting after --off. `outcome`: "put back"; "unchanged": it never changed; "left": another
    program changed it; "gone": its file is gone; "failed": the kernel refused.
    """

    setting: Setting
    outcome: str
    now: str | None  # what the file said when it was looked at
    error: Error | None = None


@dataclass(frozen=True)
class Switched:
    """The changes: `settings` by --on, `undone` by --off; neither if nothing was to do."""

    notes: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    undone: tuple[Undone, ...] = ()


def on(files: Files, wish: Wish) -> Switched:
    """Switches on. An exception means that nothing has changed, or else an Error says that undoing
    failed too."""
    try:
        _check_root(files)
        check_host(files)
    except DeniedError:
        plan(files, wish)  # where this cannot do it, root cannot either
        raise
    with locked(files):
        notes = []
        boot, old = boot_id(files), load(files)
        if old is not None and old.boot != boot:
            notes.append("what was noted at an earlier boot is void, and forgotten")
            old = None
        if old is not None and old.settings:
            return _on_already(files, old, wish)
        made = plan(files, wish)
        notes += made.notes
        changes = tuple(made.changes)
        _check_writable(files, changes)
        if not changes:
            return Switched((*notes, "all of it is set already; nothing was changed"))
        left = () if old is None else old.left
        written, more = _write(files, State(boot, wish.as_json(), changes, left=left))
        return Switched((*notes, *more), written)


def set_weights(files: Files, weights: Mapping[int, int]) -> list[Setting]:
    """Sets the kernel's table of weights: all of it, or nothing and an Error. Nothing is recorded
    for --off; `unset_weights` restores the returned settings.
    """
    changes = [setting for setting in weights_of(files, weights) if setting.is_change]
    for setting in changes:
        if not files.writable(setting.file):
            raise DeniedError(
                f"cannot write /{setting.file}; use sudo, on the host where this is a container"
            )
    done: list[Setting] = []
    try:
        for setting in changes:
            done.append(setting)  # the kernel may have taken one that fails
            files.write(setting.file, setting.wanted)
            _check_taken(files, setting)
    except Error as error:
        raise type(error)(f"{error}; {unset_weights(files, done)}") from None
    except BaseException:  # Ctrl-C
        unset_weights(files, done)
        raise
    return done


def unset_weights(files: Files, settings: Sequence[Setting]) -> str:
    """Restores the settings from `set_weights`. Returns a note for the user."""
    failed = [
        f"/{each.setting.file} was {each.setting.before}"
        for each in _put_back(files, settings, complete=False, force=True)
        if each.error is not None
    ]
    return f"not put back: {', '.join(failed)}" if failed else "all weights are as they were"


def shown(files: Files, wish: Wish) -> tuple[State | None, Plan]:
    """Returns the active state, if any, and the plan of --on; changes nothing. Files that only root
    may read give a note, or an error if there is nothing else to show.
    """
    old = load(files)
    if old is not None and old.settings and old.boot == boot_id(files):
        return old, Plan(old.settings, ())
    try:
        if wish.schemes:
            files.read(damon.COUNT)
    except DeniedError as error:
        rest = replace(wish, schemes=())
        if not (rest.promotion or rest.demotion or rest.weights):
            raise
        made = plan(files, rest)
        return None, replace(made, notes=(*made.notes, f"DAMON's part is not shown: {error}"))
    return None, plan(files, wish)


def off(files: Files, *, force: bool = False) -> Switched:
    """Restores the settings from before --on. If some cannot be restored, raises after the rest."""
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
        undone = _put_back(files, old.settings, complete=old.phase != state.BEGUN, force=force)
        since = _left_before(files, old, force)
        rest = replace(
            old,
            settings=_kept(old.settings, undone, "failed"),
            left=_kept(old.settings, undone, "left") + _kept(old.left, since, "left", "failed"),
            phase=state.ENDING if old.phase == state.ON else old.phase,
        )
        undone += since
        _settle(files, rest, _told(undone))
    for error in (each.error for each in undone if each.error is not None):
        raise type(error)(_told(undone))
    return Switched((), (), tuple(undone))


def _told(undone: Sequence[Undone]) -> str:
    """The result of --off: settings that were not restored, with reasons. All others are restored.
    """
    failed = [each for each in undone if each.error is not None]
    if not failed:
        return "all was put back, or left to somebody else"
    names = [f"/{each.setting.file}" for each in failed]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (
        f"{failed[0].error}; not put back: {len(failed)} of {len(undone)} "
        f"({', '.join(names[:_LISTED])}{more}); once that is mended, headrace tier kernel --off "
        "again"
    )


def _settle(files: Files, rest: State, done: str) -> None:
    """Records the settings that are still to be restored. An Error also reports the settings
    already `done`."""
    try:
        if rest.settings or rest.left:
            save(files, rest)
        else:
            forget(files)
    except Error as error:
        raise type(error)(f"{done}, but {error}; then headrace tier kernel --off again") from None


def _kept(
    settings: Iterable[Setting], undone: Iterable[Undone], *outcomes: str
) -> tuple[Setting, ...]:
    """The settings with these outcomes. If one setting of DAMON has such an outcome, all of DAMON's
    are included."""
    files = {each.setting.file for each in undone if each.outcome in outcomes}
    whole = any(file.startswith(KDAMONDS) for file in files)
    return tuple(
        each for each in settings
        if each.file in files or (whole and each.file.startswith(KDAMONDS))
    )  # fmt: skip


def _check_root(files: Files) -> None:
    """Raises unless the state's folder, or the nearest existing one above it, is writable."""
    folder = files.path(STATE_FOLDER)
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
    """Settings that can be restored. The kernel's automatic weights are left out, with a note, if
    the kernel refuses to write their current value: writing any weight ends automatic weights
    anyway.
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
    if os.geteuid() == 0:
        return DeniedError(
            f"{what} cannot be written, not even by root: it is read-only, as in most containers; "
            "do it on the host. Everywhere: --show, headrace tier status, and headrace::PageTier "
            "for one's own memory"
        )
    return DeniedError(
        f"{what} cannot be written: settings of the kernel are root's, and in most containers "
        "nobody's; use sudo on the host. Without root: --show, headrace tier status, and "
        "headrace::PageTier for one's own memory"
    )


def _on_already(files: Files, old: State, wish: Wish) -> Switched:
    if old.phase == state.BEGUN:
        raise InvalidError(
            "an earlier --on was interrupted; headrace tier kernel --off puts back what it did"
        )
    if old.phase == state.ENDING:
        raise InvalidError(
            "an earlier --off could not put back all; headrace tier kernel --off again"
        )
    for setting in old.settings:
        now = files.setting(setting.file)
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


def _write(files: Files, wanted: State) -> tuple[tuple[Setting, ...], list[str]]:
    """Writes all settings or none; after a failure the earlier state is recorded again. Returns the
    written settings, and notes."""
    try:
        save(files, wanted)
    except BaseException:
        with suppress(Error):  # what was noted before is there still, in most cases
            _settle(files, replace(wanted, settings=()), "")
        raise
    done: list[Setting] = []
    at: list[Setting] = []
    try:
        wanted, notes = _restorable(files, wanted)
        for setting in wanted.settings:
            at = [setting]
            files.set(setting.file, setting.wanted)
            done.append(setting)
            at = []
            _check_taken(files, setting)
        save(files, replace(wanted, phase=state.ON))
    except Error as error:
        raise type(error)(f"{error}; {_undo(files, wanted, done)}") from None
    except BaseException:  # Ctrl-C: the kernel may have taken the one in hand
        _undo(files, wanted, done, at)
        raise
    return wanted.settings, notes


def _undo(
    files: Files, wanted: State, done: Sequence[Setting], at: Sequence[Setting] = ()
) -> str:
    """Restores settings that this --on wrote or may have written. Returns a note for the user."""
    undone = _put_back(files, at, complete=False, force=False)
    undone += _put_back(files, done, complete=False, force=True)
    if any(each.outcome == "failed" for each in undone):
        rest = replace(wanted, settings=_kept(wanted.settings, undone, "failed"))
        told = "not all could be put back: headrace tier kernel --off"
    else:
        rest, told = replace(wanted, settings=()), "all else was put back"
    try:
        _settle(files, rest, told)
    except Error as error:
        return str(error)
    return told


def _check_taken(files: Files, setting: Setting) -> None:
    now = files.setting(setting.file)
    if now != setting.wanted:
        raise InvalidError(
            f"the kernel took {setting.wanted} in /{setting.file} but reads back {now}"
        )


def _put_back(
    files: Files, settings: Sequence[Setting], *, complete: bool, force: bool
) -> list[Undone]:
    """Restores the settings in reverse order; each is tried, even if others fail."""
    unsure, foreign = None, False
    try:
        foreign = not force and _is_foreign(files, settings, complete)
    except Error as error:
        unsure = error
    undone = []
    for setting in reversed(settings):
        if setting.before is None:
            continue  # goes with what made it
        is_damon = setting.file.startswith(KDAMONDS)
        if is_damon and unsure is not None:
            undone.append(Undone(setting, "failed", None, unsure))
        elif setting.file in AUTOMATIC:
            undone.append(_choice_put_back(files, setting, force, undone))
        else:
            undone.append(_one_put_back(files, setting, force, not (is_damon and foreign)))
    return undone


def _choice_put_back(
    files: Files, setting: Setting, force: bool, undone: Sequence[Undone]
) -> Undone:
    """Restores the kernel's automatic weights after all single weights: it would replace another
    program's weights, and writing any weight ends it."""
    weights = [each for each in undone if each.setting.file.startswith(WEIGHTS)]
    for each in weights:
        if each.error is not None:
            return Undone(setting, "failed", None, each.error)
    ours = all(each.outcome != "left" for each in weights)
    return _one_put_back(files, setting, force, ours)


def _left_before(files: Files, old: State, force: bool) -> list[Undone]:
    """Retries the settings that earlier --offs left to another program. The kernel's automatic
    weights come last, since writing any weight ends them.
    """
    since = {each.file for each in old.settings}
    return [
        _one_put_back(files, each, force, False)
        for each in sorted(reversed(old.left), key=lambda each: each.file in AUTOMATIC)
        if each.before is not None and each.file not in since
    ]


def _one_put_back(files: Files, setting: Setting, force: bool, ours: bool) -> Undone:
    assert setting.before is not None
    try:
        now = files.setting(setting.file)
        if now is None:
            if not force:
                _check_gone(files, setting.file)
            return Undone(setting, "gone", now)
        if now == setting.before:
            return Undone(setting, "unchanged", now)
        if not force and not (ours and now == setting.wanted):
            return Undone(setting, "left", now)
        files.set(setting.file, setting.before)
        _check_taken(files, replace(setting, wanted=setting.before))
    except Error as error:
        return Undone(setting, "failed", None, error)
    return Undone(setting, "put back", now)


def _check_gone(files: Files, name: str) -> None:
    """Raises unless the kernel may have removed the file, as it does with files of kdamonds and
    nodes. A container hides their whole folder."""
    for folder in (KDAMONDS, WEIGHTS):
        if name != damon.COUNT and name.startswith(folder) and files.path(folder).is_dir():
            return
    raise AbsentError(
        f"/{name} is not there, as in some containers; do this where --on was done, or forget it "
        "with --off --force"
    )


def _is_foreign(files: Files, settings: Sequence[Setting], complete: bool) -> bool:
    """Whether the existing kdamonds belong to another program now. A running one, and any after a
    complete --on, must have all the written values.
    """
    ours = [setting for setting in settings if setting.file.startswith(KDAMONDS)]
    made = [setting for setting in ours if setting.before is None]
    for setting in ours:
        now = files.read(setting.file)
        if setting.file == damon.COUNT:
            if now is None:
                _check_gone(files, damon.COUNT)
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
