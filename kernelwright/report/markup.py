"""Element names, attributes and what is inside come in; HTML text goes out. Texts are escaped by `plain`, once."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["hidden", "plain", "row_of_cells", "scrolling", "table_of", "tag"]


def plain(text: object) -> str:
    return escape(str(text), quote=False)


def tag(name: str, *inside: str, **attributes: str | None) -> str:
    """tag("td", "3", class_="number") is <td class="number">3</td>. An attribute that is None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{''.join(inside)}</{name}>"


def hidden(text: str) -> str:
    """For those who listen to the page."""
    return tag("span", plain(text), class_="hidden")


def scrolling(inside: str, label: str) -> str:
    """What may be wider than a phone; the keyboard reaches it too."""
    return tag("div", inside, class_="scroll", tabindex="0", role="region", aria_label=label)


def row_of_cells(name: str, cells: Iterable[str]) -> str:
    """A row whose first cell is its name."""
    return tag("tr", tag("th", name, scope="row"), *cells)


def table_of(titles: Iterable[tuple[str, str | None]], rows: Iterable[str], kind: str) -> str:
    """Titles with the class of their column; rows as they are."""
    head = (tag("th", title, scope="col", class_=column) for title, column in titles)
    return tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_=kind)
