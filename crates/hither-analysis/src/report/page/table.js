// A table that can be sorted, filtered and selected from. A column has `head`, `text` (shown and
// searched), for numbers `value` (the sort key), `cell` if it shows more than text, and `absent` if
// the column would be empty.

const STEP = 20;

const table = (
  holder,
  {
    columns: all,
    rows,
    noun,
    caption,
    pick,
    left = 0,
    sorted = null,
    filter = rows.length > 8,
    limit = STEP,
  },
) => {
  const columns = all.filter((column) => !column.absent);
  let order = sorted;
  let wanted = "";
  let shown = limit;
  let picked = null;
  const searched = rows.map((row) =>
    columns
      .filter((column) => !column.value)
      .map((column) => column.text(row))
      .join("\n")
      .toLowerCase(),
  );

  const input = el("input", {
    type: "search",
    placeholder: `Filter ${plural(noun)}`,
    "aria-label": `Filter ${plural(noun)}`,
  });
  const found = el("span", { class: "found", "aria-live": "polite" });
  const head = el("tr");
  const rowsOf = el("tbody");
  const more = el("button", { type: "button" });
  const rest = el("span");
  const foot = el("div", { class: "foot" }, more, rest);

  const matching = () => {
    let at = rows.map((_, index) => index);
    if (wanted) at = at.filter((index) => searched[index].includes(wanted));
    if (order) {
      const { column, down } = order;
      const value = columns[column].value ?? ((row) => columns[column].text(row).toLowerCase());
      const values = rows.map(value);
      at.sort((a, b) => {
        const [one, other] = [values[a], values[b]];
        const by = one === other ? a - b : (one ?? -Infinity) < (other ?? -Infinity) ? -1 : 1;
        return one === other ? by : down ? -by : by;
      });
    }
    return at;
  };

  const line = (index) => {
    const row = rows[index];
    const cells = columns.map((column) =>
      el("td", { class: column.class }, column.cell ? column.cell(row) : column.text(row)),
    );
    const tr = el("tr", { "data-row": String(index) }, cells);
    if (pick) {
      tr.className = "picks";
      tr.tabIndex = 0;
      tr.setAttribute("aria-selected", String(picked === index));
      tr.addEventListener("click", () => choose(index));
      tr.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          choose(index);
        } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
          event.preventDefault();
          (event.key === "ArrowDown" ? tr.nextElementSibling : tr.previousElementSibling)?.focus();
        }
      });
    }
    return tr;
  };

  const draw = () => {
    const at = matching();
    head.replaceChildren(
      ...columns.map((column, index) => {
        const sort = order?.column === index ? (order.down ? "descending" : "ascending") : "none";
        const button = el("button", { type: "button" }, column.head);
        button.addEventListener("click", () => {
          const down = order?.column === index ? !order.down : Boolean(column.value);
          order = { column: index, down };
          draw();
          head.children[index].firstChild.focus();
        });
        return el(
          "th",
          { scope: "col", class: column.class, "aria-sort": sort, title: column.title },
          column.plain ? column.head : button,
        );
      }),
    );
    rowsOf.replaceChildren(...at.slice(0, shown).map(line));
    found.textContent = wanted ? `${counted(at.length, noun)} of ${count(rows.length)}` : "";
    more.hidden = at.length <= shown;
    more.textContent = `Show ${Math.min(100, at.length - shown)} more`;
    const hidden = at.length - Math.min(shown, at.length);
    rest.textContent = [
      hidden > 0 ? `${count(hidden)} not shown` : "",
      left > 0 ? `${counted(left, `other ${noun}`)} left out of this page` : "",
    ]
      .filter(Boolean)
      .join("; ");
    foot.hidden = more.hidden && !rest.textContent;
  };

  const choose = (index) => {
    picked = picked === index ? null : index;
    mark();
    pick(picked === null ? null : rows[picked]);
  };
  const mark = () => {
    for (const tr of rowsOf.children)
      tr.setAttribute("aria-selected", String(Number(tr.dataset.row) === picked));
  };

  input.addEventListener("input", () => {
    wanted = input.value.trim().toLowerCase();
    shown = limit;
    draw();
  });
  more.addEventListener("click", () => {
    shown += 100;
    draw();
  });
  draw();
  holder.append(
    ...(filter ? [el("div", { class: "filter" }, input, found)] : []),
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { class: "data" },
        el("caption", { hidden: true }, caption ?? noun),
        el("thead", {}, head),
        rowsOf,
      ),
    ),
    foot,
  );
  return {
    // Marks a row without an event.
    mark: (wantedRow) => {
      picked = wantedRow === null ? null : rows.indexOf(wantedRow);
      if (picked !== null && picked >= 0) {
        const at = matching().indexOf(picked);
        if (at >= shown) {
          shown = at + 1;
          draw();
        }
      }
      mark();
    },
  };
};
