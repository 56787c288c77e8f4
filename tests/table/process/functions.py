"""Process table functions that tests call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from penstock.common import Row, RowKind
from penstock.table import ChangelogMode, ListView, MapView, ProcessTableFunction
from penstock.table.udf import (
    ArgumentHint,
    ArgumentTrait,
    CallContext,
    ChangelogContext,
    ColumnList,
    Context,
    OnTimerContext,
    StateHint,
)

SET: Final = ArgumentTrait.SET_SEMANTIC_TABLE
ROW: Final = ArgumentTrait.ROW_SEMANTIC_TABLE


class Count:
    """How many rows there were."""

    rows: int = 0


@dataclass
class Cart:
    """What is in a cart, by product, and the last one of all."""

    items: dict[str, int] = field(default_factory=dict)
    last: str | None = None


class Counting(ProcessTableFunction[int]):
    """Counts the rows of a partition."""

    def eval(self, seen: Annotated[Count, StateHint()], r: Annotated[Row, SET]) -> Iterator[int]:
        seen.rows += 1
        yield seen.rows


class Filling(ProcessTableFunction):
    """Fills carts: state with a dictionary that changes in place. `drop` clears the cart."""

    def eval(self, ctx: Context, cart: Annotated[Cart, StateHint()], r: Annotated[Row, SET]) -> Iterator[str]:
        cart.items[r.product] = cart.items.get(r.product, 0) + 1
        yield f"{sorted(cart.items.items())} after {cart.last}"
        cart.last = r.product
        if r.product == "drop":
            ctx.clear_state("cart")


class Remembering(ProcessTableFunction[str]):
    """Has state of each kind."""

    def eval(
        self,
        ctx: Context,
        first: Annotated[Row, StateHint(type="ROW<word STRING, n INT>")],
        words: ListView[str],
        counts: MapView[str, int],
        r: Annotated[Row, SET],
    ) -> None:
        if first.word is None:
            first["word"] = r.word
        first["n"] = (first.n or 0) + 1
        words.add(r.word)
        counts.put(r.word, (counts.get(r.word) or 0) + 1)
        self.collect(f"{first.word} {first.n} {list(words)} {sorted(counts.items())}")
        if r.word == "words":
            ctx.clear_state("words")
        elif r.word == "all":
            ctx.clear_all_state()


class Expiring(ProcessTableFunction[str]):
    """Has state with lifetimes of its own, of the job, and none."""

    def eval(
        self,
        short: Annotated[Count, StateHint(ttl="10 s")],
        of_job: Annotated[Count, StateHint()],
        endless: Annotated[Count, StateHint(ttl="0")],
        items: Annotated[ListView[int], StateHint(ttl=10_000)],
        r: Annotated[Row, SET],
    ) -> Iterator[str]:
        for state in (short, of_job, endless):
            state.rows += 1
        items.add(r.n)
        yield f"{short.rows} {of_job.rows} {endless.rows} {list(items)}"


class Stack:
    """State with one field, whose value changes in place."""

    words: list[str] | None = None


class Stacking(ProcessTableFunction[str]):
    """Shows the words of earlier calls, and keeps this one: in place, or in another list. `none` empties the state."""

    def eval(self, stack: Annotated[Stack, StateHint()], r: Annotated[Row, SET]) -> Iterator[str]:
        yield str(stack.words)
        if r.word == "none":
            stack.words = None
        elif stack.words is None or r.word == "new":
            stack.words = [r.word]
        else:
            stack.words.append(r.word)


class Timing(ProcessTableFunction[str]):
    """Does what each row says with timers, and shows those that fire."""

    def eval(self, ctx: Context, seen: Annotated[Count, StateHint()], r: Annotated[Row, SET]) -> Iterator[str]:
        times = ctx.time_context(int)
        seen.rows += 1
        for order in r.orders.split():
            word, _, rest = order.partition(":")
            name, _, time = rest.partition("@")
            if word == "set":
                times.register_on_time(*([name, int(time)] if name else [int(time)]))
            elif word == "clear":
                times.clear_timer(name or int(time))
            elif word == "clear-timers":
                ctx.clear_all_timers()
            elif word == "clear-all":
                ctx.clear_all()
            else:
                yield f"at {times.time()} watermark {times.current_watermark()} {times.table_watermark()}"

    def on_timer(self, ctx: OnTimerContext, seen: Count) -> Iterator[str]:
        """Show the timer; `again` sets itself once more."""
        times = ctx.time_context(int)
        time = times.time()
        assert time is not None
        yield f"timer {ctx.current_timer()} at {time} watermark {times.current_watermark()} rows {seen.rows}"
        if ctx.current_timer() == "again":
            times.register_on_time("done", time)
        if ctx.current_timer() == "forget":
            ctx.clear_all()


class Joining(ProcessTableFunction):
    """Takes rows of two tables into one state."""

    def eval(
        self,
        seen: Annotated[Count, StateHint()],
        left: Annotated[Row | None, SET],
        right: Annotated[Row | None, SET],
        mark: str = "-",
    ) -> Iterator[str]:
        seen.rows += 1
        side = "left" if left is not None else "right"
        yield f"{mark}{side} {left if left is not None else right} {seen.rows}"


class Passing(ProcessTableFunction[int]):
    """Passes the columns of rows through."""

    def eval(self, r: Annotated[Row, SET, ArgumentTrait.PASS_COLUMNS_THROUGH]) -> Iterator[int]:
        yield len(r)


class Arguments(ProcessTableFunction[str]):
    """Shows arguments of many kinds."""

    def eval(
        self,
        r: Annotated[Row, ROW],
        i: Annotated[int, ArgumentHint(type="INT")],
        columns: Annotated[ColumnList | None, ArgumentHint(is_optional=True)],
        text: Annotated[str, ArgumentHint(is_optional=True, name="label")],
        rate: float = 0.5,
    ) -> Iterator[str]:
        names = None if columns is None else columns.get_names()
        yield f"{r} {i!r} {names} {text!r} {rate!r}"


class Changes(ProcessTableFunction[str]):
    """Shows the changes of a table."""

    def eval(self, ctx: Context, r: Annotated[Row, SET, ArgumentTrait.SUPPORT_UPDATES]) -> Iterator[str]:
        yield f"{r} {ctx.table_semantics_for('r').changelog_mode()}"


class WholeChanges(ProcessTableFunction[str]):
    """Shows the changes of a table, with the rows before."""

    def eval(
        self,
        r: Annotated[Row, SET, ArgumentTrait.SUPPORT_UPDATES, ArgumentTrait.REQUIRE_UPDATE_BEFORE],
    ) -> Iterator[str]:
        yield str(r)


class Retracting(ProcessTableFunction):
    """Sums by updates with both rows; 0 deletes the sum."""

    result_type = "ROW<total BIGINT>"

    def get_changelog_mode(self, context: ChangelogContext) -> ChangelogMode:
        """All changes."""
        return ChangelogMode.all()

    def eval(
        self, ctx: Context, total: Annotated[Row, StateHint(type="ROW<n BIGINT>")], r: Annotated[Row, SET]
    ) -> Iterator[Row]:
        before = total.n
        if r.n == 0:
            yield Row.of_kind(RowKind.DELETE, before)
            ctx.clear_all_state()
            return
        total["n"] = (before or 0) + r.n
        if before is None:
            yield Row(total=total.n)
        else:
            yield Row.of_kind(RowKind.UPDATE_BEFORE, before)
            yield Row.of_kind(RowKind.UPDATE_AFTER, total.n)


class Upserting(ProcessTableFunction):
    """Counts by updates of its key."""

    result_type = "ROW<n BIGINT>"

    def get_changelog_mode(self, context: ChangelogContext) -> ChangelogMode:
        """Updates by key."""
        return ChangelogMode.upsert()

    def eval(self, seen: Annotated[Count, StateHint()], r: Annotated[Row, SET]) -> Iterator[Row]:
        seen.rows += 1
        yield Row.of_kind(RowKind.INSERT if seen.rows == 1 else RowKind.UPDATE_AFTER, seen.rows)


class Reversing(ProcessTableFunction):
    """Gives the columns of a table in the opposite order: the call decides the type of the result."""

    def get_result_type(self, call: CallContext) -> Any:
        """The columns, the last first; `width` of them if it is given."""
        fields = list(call.table_semantics_for("r").data_type())  # type: ignore[call-overload]
        width = call.get_argument_value("width")
        return type(call.table_semantics_for("r").data_type())(fields[::-1][:width])

    def eval(self, r: Annotated[Row, ROW], width: int | None = None) -> Iterator[Row]:
        yield Row(*list(r)[::-1][:width])
