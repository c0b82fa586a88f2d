// Filters and sorts the table, opens the section a link leads to. Without it the page shows everything.
"use strict";
const table = document.getElementById("problems");
const rows = [...table.tBodies[0].rows];
const fields = ["search", "standing", "speed", "family"].map((id) => document.getElementById(id));
const count = document.getElementById("count");

function filter() {
  const [search, standing, speed, family] = fields.map((field) => field.value);
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const text = row.dataset.text ??= row.textContent.toLowerCase();
    const fits = words.every((word) => text.includes(word)) && (!standing || row.dataset.standing === standing)
      && (!speed || row.dataset.speed === speed) && (!family || row.dataset.family === family);
    row.hidden = !fits;
    document.getElementById(row.dataset.problem).hidden = !fits;
    shown += fits;
  }
  count.value = `${shown} of ${rows.length} problems`;
}

function sort(button) {
  const heading = button.parentElement;
  const column = Number(button.dataset.column);
  const numeric = heading.classList.contains("number");
  const descending = heading.ariaSort ? heading.ariaSort === "ascending" : numeric;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const key = (row) => {
    const cell = row.cells[column];
    if (!numeric) return cell.textContent.trim();
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  };
  const order = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === null || y === null) return (x === null) - (y === null);  // what was not measured stays last
    const way = numeric ? x - y : x.localeCompare(y, undefined, { numeric: true });
    return descending ? -way : way;
  };
  table.tBodies[0].append(...rows.sort(order));
}

function open() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") {
    target.hidden = false;
    target.open = true;
    target.scrollIntoView();
    target.querySelector("summary").focus({ preventScroll: true });
  }
}

for (const field of fields) field.addEventListener("input", filter);
document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
table.tHead.addEventListener("click", (event) => event.target.closest("button") && sort(event.target.closest("button")));
addEventListener("hashchange", open);
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, select")) {
    event.preventDefault();
    fields[0].focus();
  }
});
open();
