// The comparison of two runs.

const comparisonSection = (section, holder, { comparison, runs }) => {
  section.hidden = !comparison;
  if (!comparison) return;
  const [a, b] = runs;
  const unit = { count, bytes, share: percent, ns: duration };
  const points = (share) =>
    Math.abs(share) < 0.0005
      ? "0.0"
      : `${share >= 0 ? "+" : "−"}${(Math.abs(share) * 100).toFixed(1)}`;
  const change = (one, other) => {
    if (one === other) return "=";
    if (one === 0) return "from none";
    if (other > 10 * one) return `× ${count(other / one)}`;
    return `${other >= one ? "+" : "−"}${percent(Math.abs(other - one) / one)}`;
  };
  const [first, ...others] = comparison.sentences;
  holder.append(
    el(
      "dl",
      { class: "facts" },
      el("dt", {}, "A"),
      el("dd", { class: "mono" }, visible(shortened(commandOf(a), 200))),
      el("dt", {}, "B"),
      el("dd", { class: "mono" }, visible(shortened(commandOf(b), 200))),
    ),
    el("p", { class: "headline" }, visible(first)),
    el(
      "ul",
      { class: "more" },
      others.map((sentence) => el("li", {}, visible(sentence))),
    ),
  );
  const grid = el("div", { class: "grid" });
  holder.append(grid);

  const curves = el("div");
  grid.append(curves);
  const both = ["lru", "opt"]
    .flatMap((policy) =>
      runs.map((run, index) => {
        const curve = run.curves.find((one) => one.policy === policy);
        const style = [
          policy === "lru" ? "c1" : "c0",
          policy === "lru" ? "●○"[index] : "■□"[index],
          index === 0 ? [] : [5, 4],
        ];
        return (
          curve && {
            label: `${policy}, ${"AB"[index]}`,
            style,
            points: curve.cache_blocks.map((blocks, at) => [
              blocks * run.stats.block_bytes,
              curve.hit_ratio[at],
            ]),
          }
        );
      }),
    )
    .filter((line) => line && line.points.length > 0);
  if (both.length > 0) {
    const legend = el("div", { class: "legend", role: "group", "aria-label": "Curves" });
    const plot = el("div", { class: "chart" });
    curves.append(el("h3", {}, "Hit ratio"), legend, plot);
    lineChart(plot, {
      label: "Hit ratio of LRU and of the optimum in both runs",
      lines: both,
      legend,
      both: legend,
      log: false,
      x: { label: "cache size", log: 2, values: shortBytes, tip: (at) => `cache of ${bytes(at)}` },
      y: { range: [0, 1], values: percent },
    });
  }
  const figures = el("div");
  grid.append(figures);
  figures.append(el("h3", {}, "Figures"));
  table(figures, {
    noun: "figure",
    rows: comparison.figures.filter((figure) => figure.a > 0 || figure.b > 0),
    filter: false,
    limit: 100,
    columns: [
      { head: "", plain: true, class: "short", text: (figure) => figure.name },
      {
        head: "A",
        plain: true,
        value: (figure) => figure.a,
        text: (figure) => unit[figure.unit](figure.a),
      },
      {
        head: "B",
        plain: true,
        value: (figure) => figure.b,
        text: (figure) => unit[figure.unit](figure.b),
      },
      {
        head: "change",
        plain: true,
        value: (figure) => figure.b - figure.a,
        text: (figure) =>
          figure.unit === "share"
            ? `${points(figure.b - figure.a)} points`
            : change(figure.a, figure.b),
      },
    ],
  });
  if (comparison.caches.length > 0) {
    const part = el("div", { class: "block" });
    holder.append(part);
    const blockBytes = a.stats.block_bytes;
    // Each run may have a size of its own: the memory that it had.
    const sizes = a.sizes.filter((size) =>
      b.sizes.some((other) => other.cache_blocks === size.cache_blocks),
    );
    const rows = a.curves
      .map((curve, index) => ({
        label: curve.policy,
        cells: comparison.caches.slice(index * sizes.length, (index + 1) * sizes.length),
      }))
      .filter((row) => row.cells.length === sizes.length);
    part.append(el("h3", {}, "Blocks from storage (misses), in the same caches"));
    table(part, {
      noun: "policy",
      caption: "Misses by policy and cache size, of A and of B",
      rows,
      filter: false,
      limit: 100,
      columns: [
        { head: "A → B", plain: true, class: "short", text: (row) => row.label },
        ...sizes.map((size, index) => ({
          head: bytes(size.cache_blocks * blockBytes),
          value: (row) => row.cells[index].b.misses - row.cells[index].a.misses,
          text: (row) => count(row.cells[index].b.misses),
          cell: (row) => {
            const { a: one, b: other } = row.cells[index];
            const which =
              other.misses < one.misses ? "better" : other.misses > one.misses ? "worse" : "";
            return el(
              "span",
              { title: `hit ratio ${percent(one.hit_ratio)} and ${percent(other.hit_ratio)}` },
              el("b", { class: which }, change(one.misses, other.misses)),
              el("small", {}, `${count(one.misses)} → ${count(other.misses)}`),
            );
          },
        })),
      ],
    });
  }
  const pairs = (title, rows, noun, left, classes) => {
    if (rows.length === 0) return;
    const part = el("div", { class: "block" });
    holder.append(part);
    part.append(el("h3", {}, title));
    table(part, {
      noun,
      rows,
      left,
      small: (pair) => Math.max(pair.a.share, pair.b.share) < 0.001,
      limit: 12,
      columns: [
        {
          head: noun,
          class: "words",
          text: (pair) => visible(pair.name),
          cell: (pair) =>
            el(
              "span",
              { class: "mono", title: visible(pair.name) },
              shortened(classes ? brief(pair.name) : visible(pair.name), 160),
            ),
        },
        {
          head: "references, A",
          value: (pair) => pair.a.references,
          text: (pair) => count(pair.a.references),
        },
        {
          head: "references, B",
          value: (pair) => pair.b.references,
          text: (pair) => count(pair.b.references),
        },
        {
          head: "share, A",
          class: "wide",
          value: (pair) => pair.a.share,
          text: (pair) => percent(pair.a.share),
        },
        {
          head: "share, B",
          class: "wide",
          value: (pair) => pair.b.share,
          text: (pair) => percent(pair.b.share),
        },
        {
          head: "points",
          title: "percentage points of the references",
          value: (pair) => pair.change,
          text: (pair) => points(pair.change),
        },
        ...(classes
          ? [
              {
                head: "class",
                class: "short wide",
                text: ({ a: one, b: other }) =>
                  (one.class ?? "-") === (other.class ?? "-")
                    ? (one.class ?? "-")
                    : `${one.class ?? "-"} → ${other.class ?? "-"}`,
              },
            ]
          : []),
      ],
    });
  };
  pairs("Call sites", comparison.sites, "call site", comparison.sites_left_out, true);
  pairs("Files", comparison.files, "file", comparison.files_left_out, false);
};
