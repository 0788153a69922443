// Charts: uPlot with our axes, marks and colours. A chart is small, so it is created again when the
// theme or its width changes.

const charts = new Map();

// Steps of an axis of bytes.
const POWERS = Array.from({ length: 60 }, (_, exponent) => 2 ** exponent);

const axis = (values, label, more = {}) => ({
  stroke: colour("faint"),
  grid: { stroke: colour("line"), width: 1 },
  ticks: { stroke: colour("line"), width: 1, size: 5 },
  font: "12px system-ui, sans-serif",
  labelFont: "12px system-ui, sans-serif",
  label,
  labelSize: 18,
  values: (_, splits) => splits.map((split) => (split === null ? null : values(split))),
  ...more,
});

// A chart in `holder`. `make` returns its options and data whenever it is drawn.
const chart = (holder, make, label) => {
  holder.setAttribute("role", "img");
  holder.setAttribute("aria-label", label);
  const draw = () => {
    charts.get(holder)?.destroy();
    const [options, data] = make();
    const width = Math.max(220, holder.clientWidth);
    charts.set(
      holder,
      new uPlot({ width, height: 280, legend: { show: false }, ...options }, data, holder),
    );
  };
  holder.redraw = draw;
  let width = holder.clientWidth;
  draw();
  new ResizeObserver(() => {
    if (holder.clientWidth !== width && holder.isConnected) draw();
    width = holder.clientWidth;
  }).observe(holder);
};

const forgetCharts = () => {
  for (const [holder, plot] of charts) {
    if (!holder.isConnected) {
      plot.destroy();
      charts.delete(holder);
    }
  }
};

const redrawCharts = () => {
  forgetCharts();
  for (const holder of [...charts.keys()]) holder.redraw();
};

// About ten marks on each line, so that lines can be told apart in grey.
const marks = (styles) => (plot) => {
  const { ctx } = plot;
  ctx.save();
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.font = `${13 * devicePixelRatio}px system-ui, sans-serif`;
  plot.series.forEach((series, index) => {
    if (index === 0 || !series.show) return;
    const [name, mark] = styles[index - 1];
    ctx.fillStyle = colour(name);
    const data = plot.data[index];
    let last = -Infinity;
    const apart = plot.bbox.width / 11;
    for (let at = 0; at < data.length; at++) {
      if (data[at] === null || data[at] === undefined) continue;
      const x = plot.valToPos(plot.data[0][at], "x", true);
      if (x - last < apart || x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
      ctx.fillText(mark, x, plot.valToPos(data[at], "y", true));
      last = x;
    }
  });
  ctx.restore();
};

// A vertical line with a label at its top.
const upright = (at, word) => (plot) => {
  const x = plot.valToPos(at, "x", true);
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("ink");
  ctx.fillStyle = colour("ink");
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  const left = x > bbox.left + bbox.width / 2;
  ctx.textAlign = left ? "right" : "left";
  const [textX, textY] = [x + (left ? -5 : 5) * devicePixelRatio, bbox.top + 13 * devicePixelRatio];
  // Lines may run through the label.
  ctx.strokeStyle = colour("panel");
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.lineJoin = "round";
  ctx.setLineDash([]);
  ctx.strokeText(word, textX, textY);
  ctx.fillText(word, textX, textY);
  ctx.restore();
};

// The values under the pointer, in the tooltip.
const tip = document.getElementById("tip");
const showTip = (x, y, text) => {
  tip.hidden = false;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
};
const hideTip = () => {
  tip.hidden = true;
};

const tipped = (say) => ({
  setCursor: [
    (plot) => {
      const { idx, left, top } = plot.cursor;
      if (idx === null || idx === undefined || left < 0) return hideTip();
      const box = plot.over.getBoundingClientRect();
      showTip(box.left + left, box.top + top, say(plot, idx));
    },
  ],
});

// Lines over a common axis. Each of `lines` has a label, a style, and points [x, y], sorted by x.
const lineChart = (
  holder,
  {
    lines,
    x,
    y,
    label,
    log: logFirst = true,
    both = null,
    steps = false,
    mark = null,
    legend = null,
  },
) => {
  const styles = lines.map((line) => line.style);
  const shown = lines.map(() => true);
  let log = logFirst;
  const data = uPlot.join(
    lines.map((line) => [line.points.map(([at]) => at), line.points.map(([, value]) => value)]),
  );
  const first = data[0][0] ?? 1;
  const last = data[0][data[0].length - 1] ?? 1;
  const make = () => {
    const drawn = [marks(styles)];
    if (mark) drawn.push(upright(mark.at, mark.word));
    const options = {
      scales: {
        x: {
          time: false,
          distr: log && first > 0 && last > first ? 3 : 1,
          log: x.log ?? 10,
          range: [first, last > first ? last : first + 1],
        },
        y: { range: y.range },
      },
      axes: [
        axis(x.values, x.label, { size: 34, ...(x.log === 2 ? { incrs: POWERS, space: 80 } : {}) }),
        axis(y.axis ?? shortPercent, y.label, { size: 52 }),
      ],
      series: [
        {},
        ...lines.map((line, index) => ({
          label: line.label,
          show: shown[index],
          stroke: colour(line.style[0]),
          dash: line.style[2],
          width: line.label === "pcc" || lines.length === 1 ? 2.5 : 1.8,
          points: { show: false },
          spanGaps: true,
          paths: steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
        })),
      ],
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      hooks: {
        draw: drawn,
        ...tipped((plot, idx) => {
          const rows = lines
            .map((line, index) => [line, nearest(line.points, plot.data[0][idx]), shown[index]])
            .filter(([, point, on]) => on && point)
            .map(([line, point]) => `${line.style[1]} ${line.label}  ${y.values(point[1])}`);
          return [x.tip(plot.data[0][idx]), ...rows].join("\n");
        }),
      },
    };
    return [options, data];
  };
  chart(holder, make, label);
  holder.addEventListener("mouseleave", hideTip);
  if (legend) {
    legend.append(
      ...lines.map((line, index) => {
        const glyph = el("span", { class: "glyph" }, line.style[1]);
        const paint = () => (glyph.style.color = colour(line.style[0]));
        themed.push(paint);
        paint();
        const button = el(
          "button",
          { type: "button", class: "series", "aria-pressed": "true" },
          glyph,
          el("span", {}, line.label),
        );
        button.addEventListener("click", () => {
          shown[index] = !shown[index];
          button.setAttribute("aria-pressed", String(shown[index]));
          button.classList.toggle("off", !shown[index]);
          charts.get(holder).setSeries(index + 1, { show: shown[index] });
        });
        return button;
      }),
    );
  }
  if (both) {
    // Large sizes often matter most, so the axis is linear first. A log axis shows small caches.
    const button = el(
      "button",
      {
        type: "button",
        class: "scale",
        "aria-pressed": String(log),
        onclick: () => {
          log = !log;
          button.setAttribute("aria-pressed", String(log));
          holder.redraw();
        },
      },
      "log axis",
    );
    both.append(button);
  }
};

// The last point at or before `x`.
const nearest = (points, x) => {
  let found = null;
  for (const point of points) {
    if (point[0] > x) break;
    found = point;
  }
  return found;
};

// Bars with a label below each, or as many as fit. Those that are `apart` have another colour.
const barChart = (holder, { bars, values, label, axisLabel, tip: say, name = "c0" }) => {
  const make = () => {
    const last = bars.length - 1;
    const few = Math.max(
      1,
      Math.ceil(bars.length / Math.max(3, Math.floor(holder.clientWidth / 75))),
    );
    const options = {
      scales: {
        x: { time: false, range: [-0.6, bars.length - 0.4] },
        y: { range: [0, Math.max(0.01, ...bars.map((bar) => bar.value)) * 1.08] },
      },
      axes: [
        axis((at) => (Number.isInteger(at) ? (bars[at]?.word ?? "") : ""), axisLabel, {
          // The last bar always has its label; the one before it gives way.
          splits: () =>
            bars
              .map((_, at) => at)
              .filter((at) => at === last || (at % few === 0 && last - at >= few)),
          grid: { show: false },
          size: 34,
        }),
        axis(shortPercent, undefined, { size: 52 }),
      ],
      series: [
        {},
        ...[name, "rest"].map((one) => ({
          stroke: colour(one),
          fill: `${colour(one)}b0`,
          width: 1,
          paths: uPlot.paths.bars({ size: [0.8, 60] }),
          points: { show: false },
        })),
      ],
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      hooks: tipped((_, idx) => say(bars[idx])),
    };
    const part = (apart) => bars.map((bar) => (Boolean(bar.apart) === apart ? bar.value : null));
    return [options, [bars.map((_, at) => at), part(false), part(true)]];
  };
  chart(holder, make, label);
  holder.addEventListener("mouseleave", hideTip);
};
