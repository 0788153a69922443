// A table that can be sorted, filtered and selected from. A column has `head`, `text` (shown and
// searched), for numbers `value` (the sort key), `cell` if it shows more than text, and `absent` if
// the column would be empty. Rows that are `small` are folded away until they are asked for or
// found. `details` is what a chosen row shows below it. On a phone, each row of a table with a
// column of words is a block of its own.

const STEP = 20;

const table = (
  holder,
  {
    columns: all,
    rows,
    noun,
    caption,
    pick,
    details = null,
    small = () => false,
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
  let folds = true;
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
  const cards = columns.some((column) => column.class?.includes("words"));
  // An element that is not laid out as a table would lose its role.
  const role = (name) => (cards ? { role: name } : {});
  const head = el("tr", role("row"));
  const rowsOf = el("tbody", role("rowgroup"));
  const more = el("button", { type: "button" });
  const unfold = el("button", { type: "button", class: "unfold" });
  const rest = el("span");
  const foot = el("div", { class: "foot" }, more, unfold, rest);


  const matching = () => {
    let at = rows.map((_, index) => index);
    if (wanted) at = at.filter((index) => searched[index].includes(wanted));
    else if (folds) at = at.filter((index) => !small(rows[index]) || index === picked);
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
      el(
        "td",
        {
          class: column.class,
          "data-head": typeof column.head === "string" ? column.head : null,
          ...role("cell"),
        },
        column.cell ? column.cell(row) : column.text(row),
      ),
    );
    const tr = el("tr", { "data-row": String(index), ...role("row") }, cells);
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
          const next = event.key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling";
          let other = tr[next];
          if (other?.classList.contains("details")) other = other[next];
          other?.focus();
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
          {
            scope: "col",
            class: column.class,
            "aria-sort": sort,
            title: column.title,
            ...role("columnheader"),
          },
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
    const folded = wanted || !folds ? 0 : rows.length - at.length;
    unfold.hidden = folded === 0;
    unfold.textContent = `Show ${count(folded)} below 0.1 %`;
    foot.hidden = more.hidden && unfold.hidden && !rest.textContent;
    mark();
  };

  const choose = (index) => {
    picked = picked === index ? null : index;
    mark();
    pick(picked === null ? null : rows[picked]);
  };
  const mark = () => {
    if (!pick) return;
    rowsOf.querySelector(".details")?.remove();
    for (const tr of [...rowsOf.children]) {
      const chosen = Number(tr.dataset.row) === picked;
      tr.setAttribute("aria-selected", String(chosen));
      if (!chosen || !details) continue;
      const shown = el("td", { colSpan: columns.length, ...role("cell") }, details(rows[picked]));
      tr.after(el("tr", { class: "details", ...role("row") }, shown));
    }
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
  unfold.addEventListener("click", () => {
    folds = false;
    shown = Math.max(shown, rows.length - rows.filter(small).length) + 100;
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
        { class: cards ? "data cards" : "data", ...role("table") },
        el("caption", { hidden: true }, caption ?? noun),
        el("thead", role("rowgroup"), head),
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
        shown = Math.max(shown, matching().indexOf(picked) + 1);
      }
      draw();
    },
  };
};
