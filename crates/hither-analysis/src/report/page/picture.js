// The picture of accesses: a canvas that draws the cells of the grid (report/access_picture.rs)
// within any window of references and blocks. A pixel has the colour of the call site, or class,
// with most of its references. The majority is found in one pass over the cells by weighted votes
// (Boyer and Moore).

const inflate = async (base64) => {
  const text = atob(base64);
  const packed = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) packed[at] = text.charCodeAt(at);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

// The cells as arrays: the first cell of each column of the picture, and the row, site, class and
// count of each cell.
const decoded = async (picture) => {
  const packed = await inflate(picture.cells);
  let at = 0;
  // Decodes this many LEB128 numbers, all below 2 to the 32nd.
  const numbers = (length) => {
    const found = new Uint32Array(length);
    for (let index = 0; index < length; index++) {
      let byte = packed[at++];
      let value = byte & 0x7f;
      for (let shift = 7; byte >= 0x80; shift += 7) {
        byte = packed[at++];
        value |= (byte & 0x7f) << shift;
      }
      found[index] = value;
    }
    return found;
  };
  const start = new Uint32Array(picture.columns + 1);
  numbers(picture.columns).forEach(
    (entries, column) => (start[column + 1] = start[column] + entries),
  );
  const row = numbers(picture.entries);
  for (let column = 0; column < picture.columns; column++) {
    for (let cell = start[column] + 1; cell < start[column + 1]; cell++) row[cell] += row[cell - 1];
  }
  const key = numbers(picture.entries);
  return {
    start,
    row,
    site: key.map((value) => value >>> 2),
    kind: Uint8Array.from(key, (value) => value & 3),
    count: numbers(picture.entries).map((less) => less + 1),
  };
};

// With times there is a second axis above.
const marginOf = (times) => ({ left: 74, right: 14, top: times.length > 1 ? 46 : 10, bottom: 40 });

// Round steps for an axis from `low` to `high`.
const ticks = (low, high, most) => {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = Math.max(1, [1, 2, 5, 10].find((factor) => factor * power >= rough) * power);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return found;
};

// The time of a reference, between the times that are known.
const timesOf = (points) => (reference) => {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle].reference <= reference) low = middle;
    else high = middle;
  }
  const [from, to] = [points[low], points[high]];
  const wide = to.reference - from.reference;
  const part = wide > 0 ? (reference - from.reference) / wide : 0;
  return from.time_ns + Math.min(1, Math.max(0, part)) * (to.time_ns - from.time_ns);
};

// Times at an axis share a unit: 0.5 s, 12 s.
const timeWords = (step) => {
  const [scale, unit] = [
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "µs"],
  ].find(([least]) => step * 10 >= least) ?? [1, "ns"];
  return (ns) => `${+(ns / scale).toFixed(2)} ${unit}`;
};

const spaceTime = (holder, run, cells, { onSite }) => {
  const { picture, stats, sites, times } = run;
  const MARGIN = marginOf(times);
  const timeAt = timesOf(times);
  const all = { x0: 0, x1: Math.max(1, stats.references), y0: 0, y1: Math.max(1, stats.blocks) };
  let view = { ...all };
  let colouring = run.sites.length > 0 || !picture.classes_by ? "site" : "class";
  let selected = null; // the position of a call site
  let kind = null; // a class
  const named = new Map(sites.map((site) => [site.site, site]));
  const objects = new Map(stats.by_object.map((object) => [object.number, object]));
  const nameOf = (position) =>
    named.get(picture.sites[position])?.label ?? `call site ${picture.sites[position]}`;

  const canvas = el("canvas", {
    tabindex: "0",
    role: "img",
    "aria-describedby": "picture-status",
    "aria-label":
      "Blocks against references so far. Arrow keys move, plus and minus zoom, 0 shows all, " +
      "Escape ends a selection.",
  });
  const box = el("div", { class: "box", hidden: true });
  const plane = el("div", { class: "plane" }, canvas, box);
  const status = el("div", { class: "status", id: "picture-status", "aria-live": "polite" });
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Highlight" });
  const ctx = canvas.getContext("2d");

  const plot = () => ({
    width: canvas.clientWidth - MARGIN.left - MARGIN.right,
    height: canvas.clientHeight - MARGIN.top - MARGIN.bottom,
  });
  const toX = (x) => MARGIN.left + ((x - view.x0) / (view.x1 - view.x0)) * plot().width;
  const toY = (y) => MARGIN.top + (1 - (y - view.y0) / (view.y1 - view.y0)) * plot().height;
  const fromX = (x) => view.x0 + ((x - MARGIN.left) / plot().width) * (view.x1 - view.x0);
  const fromY = (y) => view.y0 + (1 - (y - MARGIN.top) / plot().height) * (view.y1 - view.y0);

  const bounded = (next) => {
    const fit = (low, high, least, most) => {
      const size = Math.min(most, Math.max(least, high - low));
      const start = Math.min(Math.max(0, low), most - size);
      return [start, start + size];
    };
    const [x0, x1] = fit(next.x0, next.x1, Math.min(16, all.x1), all.x1);
    const [y0, y1] = fit(next.y0, next.y1, Math.min(8, all.y1), all.y1);
    return { x0, x1, y0, y1 };
  };
  let waiting = false;
  const show = (next) => {
    view = bounded(next);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
  const zoom = (factor, x = (view.x0 + view.x1) / 2, y = (view.y0 + view.y1) / 2) =>
    show({
      x0: x - (x - view.x0) * factor,
      x1: x + (view.x1 - x) * factor,
      y0: y - (y - view.y0) * factor,
      y1: y + (view.y1 - y) * factor,
    });
  const move = (right, up) => {
    const [width, height] = [view.x1 - view.x0, view.y1 - view.y0];
    show({
      x0: view.x0 + right * width,
      x1: view.x1 + right * width,
      y0: view.y0 + up * height,
      y1: view.y1 + up * height,
    });
  };

  // The index of a colour: call sites 0 to 5, all other call sites 6, a selected one of these 7,
  // classes 8 to 11, not highlighted 12.
  const PALETTE = [...SITE_COLOURS, "rest", "ink", ...CLASS_COLOURS];
  const DIM = PALETTE.length;
  const highlights = () => selected !== null || kind !== null;

  const draw = () => {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    if (canvas.width === 0) return;
    ctx.clearRect(0, 0, canvas.width, canvas.height);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    bands();
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    const tags = density(ratio);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    axes();
    for (const tag of tags) letter(tag);
    const part = (view.x1 - view.x0) / all.x1;
    const corners = [view.x0, view.x1, view.y0, view.y1];
    holder.dataset.view = corners.map(Math.round).join(",");
    holder.dataset.selected = selected === null ? "" : String(picture.sites[selected]);
    status.textContent =
      `References ${count(view.x0)} to ${count(view.x1)} (${percent(part)}), ` +
      (times.length > 1
        ? `${duration(timeAt(view.x0))} to ${duration(timeAt(view.x1))} after the start, `
        : "") +
      `blocks ${count(view.y0)} to ${count(view.y1)}` +
      (selected === null ? "" : `; highlighted: ${brief(nameOf(selected))}`) +
      (kind === null ? "" : `; highlighted: ${CLASSES[kind]}`);
  };

  // Files are faint bands if there are not too many.
  const bands = () => {
    const { width, height } = plot();
    ctx.fillStyle = colour("ground");
    ctx.fillRect(MARGIN.left, MARGIN.top, width, height);
    const seen = picture.objects.filter(
      ([, first, blocks]) => first + blocks > view.y0 && first < view.y1,
    );
    if (seen.length > 80) return;
    ctx.fillStyle = colour("soft");
    seen.forEach(([, first, blocks], index) => {
      if (index % 2) return;
      const top = Math.max(MARGIN.top, toY(first + blocks));
      ctx.fillRect(MARGIN.left, top, width, Math.min(MARGIN.top + height, toY(first)) - top);
    });
  };

  const density = (ratio) => {
    const width = Math.round(plot().width * ratio);
    const height = Math.round(plot().height * ratio);
    if (width < 1 || height < 1) return [];
    const sum = new Float32Array(width * height);
    const votes = new Float32Array(width * height);
    const who = new Uint8Array(width * height);
    const { column_references: step, row_blocks: high } = picture;
    const [sx, sy] = [width / (view.x1 - view.x0), height / (view.y1 - view.y0)];
    const firstColumn = Math.max(0, Math.floor(view.x0 / step));
    const lastColumn = Math.min(picture.columns - 1, Math.floor(view.x1 / step));
    const bySite = colouring === "site";
    // With few cells, lines of single pixels would be too faint.
    const shown = cells.start[lastColumn + 1] - cells.start[firstColumn];
    const least = shown * 60 < width * height ? Math.ceil(1.5 * ratio) : 1;
    const colourOf = (cell) => {
      if (selected !== null && cells.site[cell] !== selected) return DIM;
      if (kind !== null && cells.kind[cell] !== kind) return DIM;
      if (!bySite) return 8 + cells.kind[cell];
      const site = cells.site[cell];
      return site < 6 ? site : selected === site ? 7 : 6;
    };
    // Each reference is a vote for a colour, and votes for other colours cancel it. The remaining
    // colour wins the pixel.
    const place = { sum: 0, votes: 0, of: 0 };
    const add = (of, weight) => {
      // A highlighted call site is never hidden by others.
      if (of === DIM && place.sum > 0 && place.of !== DIM) return;
      if (place.sum === 0 || (of !== DIM && place.of === DIM))
        Object.assign(place, { sum: 0, votes: 0, of });
      place.sum += weight;
      if (place.of === of) place.votes += weight;
      else if (place.votes < weight) Object.assign(place, { of, votes: weight - place.votes });
      else place.votes -= weight;
    };
    for (let column = firstColumn; column <= lastColumn; column++) {
      const left = Math.max(0, Math.floor((column * step - view.x0) * sx));
      const right = Math.min(
        width,
        Math.max(left + least, Math.floor(((column + 1) * step - view.x0) * sx)),
      );
      const end = cells.start[column + 1];
      for (let cell = cells.start[column]; cell < end;) {
        const row = cells.row[cell];
        const low = row * high;
        const seen = low < view.y1 && low + high > view.y0;
        // The cells of one place are counted before it is painted, since it may have hundreds of
        // pixels with hundreds of cells each.
        place.sum = 0;
        for (; cell < end && cells.row[cell] === row; cell++)
          if (seen) add(colourOf(cell), cells.count[cell]);
        if (!seen) continue;
        const bottom = Math.min(height, Math.ceil(height - (low - view.y0) * sy));
        const top = Math.max(
          0,
          Math.min(bottom - least, Math.floor(height - (low + high - view.y0) * sy)),
        );
        const { of, sum: weight, votes: lead } = place;
        const dim = of === DIM;
        for (let y = top; y < bottom; y++) {
          for (let pixel = y * width + left; pixel < y * width + right; pixel++) {
            if (sum[pixel] > 0 && dim && who[pixel] !== DIM) continue;
            if (sum[pixel] === 0 || (!dim && who[pixel] === DIM)) {
              sum[pixel] = weight;
              votes[pixel] = lead;
              who[pixel] = of;
              continue;
            }
            sum[pixel] += weight;
            if (who[pixel] === of) votes[pixel] += lead;
            else if (votes[pixel] < lead) {
              who[pixel] = of;
              votes[pixel] = lead - votes[pixel];
            } else votes[pixel] -= lead;
          }
        }
      }
    }
    let most = 1;
    for (let pixel = 0; pixel < sum.length; pixel++) if (sum[pixel] > most) most = sum[pixel];
    const shades = [...PALETTE.map(rgb), rgb("rest")];
    const image = ctx.createImageData(width, height);
    const scale = most > 1 ? 0.6 / Math.log(most) : 0;
    const middle = PALETTE.map(() => [0, 0, 0]);
    for (let pixel = 0; pixel < sum.length; pixel++) {
      if (sum[pixel] === 0) continue;
      const of = who[pixel];
      const strength = of === DIM ? 0.22 : scale === 0 ? 1 : 0.4 + scale * Math.log(sum[pixel]);
      image.data.set(shades[of], pixel * 4);
      image.data[pixel * 4 + 3] = 255 * strength;
      if (of !== DIM) {
        middle[of][0] += pixel % width;
        middle[of][1] += Math.floor(pixel / width);
        middle[of][2] += 1;
      }
    }
    const layer = new OffscreenCanvas(width, height);
    layer.getContext("2d").putImageData(image, 0, 0);
    ctx.drawImage(layer, Math.round(MARGIN.left * ratio), Math.round(MARGIN.top * ratio));
    // The letter is at the pixel of the colour that is nearest to the centre of all its pixels.
    const nearest = PALETTE.map(() => [Infinity, 0, 0]);
    for (let pixel = 0; pixel < sum.length; pixel++) {
      if (sum[pixel] === 0 || who[pixel] === DIM) continue;
      const [x, y, pixels] = middle[who[pixel]];
      const away =
        ((pixel % width) - x / pixels) ** 2 + (Math.floor(pixel / width) - y / pixels) ** 2;
      if (away < nearest[who[pixel]][0])
        nearest[who[pixel]] = [away, pixel % width, Math.floor(pixel / width)];
    }
    const tags = [];
    PALETTE.forEach((name, of) => {
      const text = of < 6 ? LETTERS[of] : of >= 9 ? CLASS_LETTERS[of - 8] : null;
      if (!text || middle[of][2] === 0) return;
      const tag = {
        text,
        name,
        x: MARGIN.left + nearest[of][1] / ratio,
        y: MARGIN.top + nearest[of][2] / ratio,
      };
      // Call sites that alternate have the same centre; then letters are placed side by side.
      while (tags.some((other) => Math.hypot(other.x - tag.x, other.y - tag.y) < 20)) tag.x += 20;
      tags.push(tag);
    });
    return tags;
  };

  const letter = ({ text, name, x, y }) => {
    const { width, height } = plot();
    const at = [
      Math.min(Math.max(x, MARGIN.left + 10), MARGIN.left + width - 10),
      Math.min(Math.max(y, MARGIN.top + 10), MARGIN.top + height - 10),
    ];
    ctx.beginPath();
    ctx.arc(...at, 9, 0, 2 * Math.PI);
    ctx.fillStyle = colour("panel");
    ctx.fill();
    ctx.lineWidth = 2;
    ctx.strokeStyle = colour(name);
    ctx.stroke();
    ctx.fillStyle = colour("ink");
    ctx.font = "bold 11px system-ui, sans-serif";
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillText(text, at[0], at[1] + 0.5);
  };

  const axes = () => {
    const { width, height } = plot();
    ctx.strokeStyle = colour("faint");
    ctx.fillStyle = colour("faint");
    ctx.lineWidth = 1;
    ctx.strokeRect(MARGIN.left - 0.5, MARGIN.top - 0.5, width + 1, height + 1);
    ctx.font = "12px system-ui, sans-serif";
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    for (const at of ticks(view.x0, view.x1, width / 110)) {
      ctx.fillRect(toX(at), MARGIN.top + height, 1, 4);
      ctx.fillText(
        shortCount(at),
        Math.min(toX(at), MARGIN.left + width - 12),
        MARGIN.top + height + 6,
      );
    }
    ctx.fillText("references so far", MARGIN.left + width / 2, MARGIN.top + height + 23);
    if (times.length > 1) timeAxis(width);
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    for (const at of ticks(view.y0, view.y1, height / 55)) {
      ctx.fillRect(MARGIN.left - 5, toY(at), 4, 1);
      ctx.fillText(shortCount(at), MARGIN.left - 8, Math.max(toY(at), MARGIN.top + 6));
    }
    ctx.save();
    ctx.translate(14, MARGIN.top + height / 2);
    ctx.rotate(-Math.PI / 2);
    ctx.textAlign = "center";
    ctx.fillText("blocks, file by file", 0, 0);
    ctx.restore();
  };

  // Seconds above: where many references are made in a short time, they are far apart.
  const timeAxis = (width) => {
    const [low, high] = [timeAt(view.x0), timeAt(view.x1)];
    const steps = ticks(low, high, width / 40);
    const words = timeWords(steps.length > 1 ? steps[1] - steps[0] : high - low);
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    ctx.fillText("time since the start", MARGIN.left + width / 2, 2);
    let before = -Infinity;
    for (const ns of steps) {
      // The first reference at that time or later.
      let to = view.x1;
      for (let low = view.x0; to - low > (view.x1 - view.x0) / width / 4;) {
        const middle = (low + to) / 2;
        if (timeAt(middle) >= ns) to = middle;
        else low = middle;
      }
      const text = words(ns);
      const half = ctx.measureText(text).width / 2;
      const x = Math.min(toX(to), MARGIN.left + width - half);
      ctx.fillRect(toX(to), MARGIN.top - 5, 1, 4);
      if (x - half < before + 12) continue;
      ctx.fillText(text, x, MARGIN.top - 20);
      before = x + half;
    }
  };

  // The cell at a point of the canvas, or the nearest one within a few pixels.
  const under = (x, y) => {
    const { width, height } = plot();
    if (x < MARGIN.left || x > MARGIN.left + width || y < MARGIN.top || y > MARGIN.top + height)
      return null;
    const { column_references: step, row_blocks: high } = picture;
    const [reach, column] = [4, Math.floor(fromX(x) / step)];
    const around = Math.min(64, Math.ceil((((view.x1 - view.x0) / width) * reach) / step));
    let best = null;
    let nearest = Infinity;
    for (
      let c = Math.max(0, column - around);
      c <= Math.min(picture.columns - 1, column + around);
      c++
    ) {
      const dx = Math.max(0, toX(c * step) - x, x - toX((c + 1) * step));
      for (let cell = cells.start[c]; cell < cells.start[c + 1]; cell++) {
        const low = cells.row[cell] * high;
        const dy = Math.max(0, toY(low + high) - y, y - toY(low));
        const away = dx * dx + dy * dy;
        if (
          away > reach * reach ||
          away > nearest ||
          (away === nearest && cells.count[cell] <= cells.count[best.cell])
        )
          continue;
        nearest = away;
        best = { cell, column: c };
      }
    }
    return best;
  };

  const objectAt = (block) =>
    picture.objects.find(([, first, blocks]) => first <= block && block < first + blocks);

  const describe = ({ cell, column }) => {
    const { column_references: step, row_blocks: high } = picture;
    const low = cells.row[cell] * high;
    const object = objectAt(low);
    const from = column * step;
    const which =
      step === 1
        ? `the ${count(from + 1)}th`
        : `of ${count(from)} to ${count(Math.min(all.x1, from + step))}`;
    const lines = [
      sites.length > 0 ? brief(nameOf(cells.site[cell])) : null,
      cells.kind[cell] ? `${CLASSES[cells.kind[cell]]} (by ${picture.classes_by})` : null,
      object ? visible(objects.get(object[0])?.name ?? "") : null,
      `${counted(cells.count[cell], "reference")}, ${which}`,
      times.length > 1 ? `after ${duration(timeAt(from))}` : null,
      high === 1
        ? `block ${count(low)}`
        : `blocks ${count(low)} to ${count(Math.min(all.y1, low + high) - 1)}`,
    ];
    return lines.filter(Boolean).join("\n");
  };

  const place = (event) => {
    const rect = canvas.getBoundingClientRect();
    return [event.clientX - rect.left, event.clientY - rect.top];
  };
  // The pointers that are down, with their first and current positions.
  const down = new Map();
  let pinched = null;
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    down.set(event.pointerId, { x, y, from: [x, y], view: { ...view } });
    if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
    pinched = down.size === 2 ? { ...view } : null;
    hideTip();
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    const pointer = down.get(event.pointerId);
    if (!pointer) {
      const found = under(x, y);
      if (found) showTip(event.clientX, event.clientY, describe(found));
      else hideTip();
      return;
    }
    [pointer.x, pointer.y] = [x, y];
    if (down.size === 2) {
      const [one, other] = [...down.values()];
      const spread = (at) =>
        Math.max(20, Math.hypot(at(one)[0] - at(other)[0], at(one)[1] - at(other)[1]));
      const before = view;
      view = pinched;
      const factor = spread((p) => p.from) / spread((p) => [p.x, p.y]);
      const [cx, cy] = [
        fromX((one.from[0] + other.from[0]) / 2),
        fromY((one.from[1] + other.from[1]) / 2),
      ];
      const start = pinched;
      view = before;
      show({
        x0: cx - (cx - start.x0) * factor,
        x1: cx + (start.x1 - cx) * factor,
        y0: cy - (cy - start.y0) * factor,
        y1: cy + (start.y1 - cy) * factor,
      });
    } else if (event.pointerType === "mouse" && event.shiftKey) {
      const { width, height } = plot();
      const [dx, dy] = [(pointer.from[0] - x) / width, (y - pointer.from[1]) / height];
      const start = pointer.view;
      show({
        x0: start.x0 + dx * (start.x1 - start.x0),
        x1: start.x1 + dx * (start.x1 - start.x0),
        y0: start.y0 + dy * (start.y1 - start.y0),
        y1: start.y1 + dy * (start.y1 - start.y0),
      });
    } else if (event.pointerType === "mouse") {
      box.hidden = false;
      box.style.left = `${Math.min(x, pointer.from[0])}px`;
      box.style.top = `${Math.min(y, pointer.from[1])}px`;
      box.style.width = `${Math.abs(x - pointer.from[0])}px`;
      box.style.height = `${Math.abs(y - pointer.from[1])}px`;
    }
  });
  const up = (event) => {
    const pointer = down.get(event.pointerId);
    down.delete(event.pointerId);
    box.hidden = true;
    if (!pointer || event.type === "pointercancel") return;
    const [fx, fy] = pointer.from;
    const [x, y] = [pointer.x, pointer.y];
    if (Math.hypot(x - fx, y - fy) < 5) {
      const found = under(x, y);
      if (found && sites.length > 0) {
        canvas.focus({ preventScroll: true });
        onSite(selected === cells.site[found.cell] ? null : cells.site[found.cell]);
      }
    } else if (event.pointerType === "mouse" && !event.shiftKey) {
      show({
        x0: fromX(Math.min(x, fx)),
        x1: fromX(Math.max(x, fx)),
        y0: fromY(Math.max(y, fy)),
        y1: fromY(Math.min(y, fy)),
      });
    }
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", () => show(all));
  canvas.addEventListener(
    "wheel",
    (event) => {
      // Without a modifier key the wheel scrolls the page.
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const [x, y] = place(event);
      zoom(Math.exp(event.deltaY / 300), fromX(x), fromY(y));
    },
    { passive: false },
  );
  const keys = {
    ArrowLeft: () => move(-0.15, 0),
    ArrowRight: () => move(0.15, 0),
    ArrowUp: () => move(0, 0.15),
    ArrowDown: () => move(0, -0.15),
    "+": () => zoom(0.6),
    "=": () => zoom(0.6),
    "-": () => zoom(1 / 0.6),
    0: () => show(all),
    Home: () => show(all),
    Escape: () => {
      kind = null;
      onSite(null);
    },
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });

  const chips = () => {
    const pressed = (on) => ({ type: "button", "aria-pressed": String(on) });
    const chip = (name, text) => {
      const round = el("span", { class: "chip" }, el("b", {}, text));
      round.style.color = colour(name);
      return round;
    };
    if (colouring === "class") {
      const seen = [1, 2, 3].filter((which) => classesSeen.has(which));
      legend.replaceChildren(
        ...seen.map((which) => {
          const button = el(
            "button",
            { ...pressed(kind === which), "data-class": CLASSES[which] },
            chip(CLASS_COLOURS[which], CLASS_LETTERS[which]),
            el("span", {}, CLASSES[which]),
          );
          button.addEventListener("click", () => {
            kind = kind === which ? null : which;
            chips();
            draw();
          });
          return button;
        }),
      );
      return;
    }
    const shown = picture.sites.slice(0, 6).map((_, position) => nameOf(position));
    const names = distinctly(shown.map(brief), shown, 60);
    const buttons = picture.sites.slice(0, 6).map((number, position) => {
      const button = el(
        "button",
        {
          ...pressed(selected === position),
          title: visible(nameOf(position)),
          "data-site": String(number),
        },
        chip(SITE_COLOURS[position], LETTERS[position]),
        el("span", {}, names[position]),
      );
      button.addEventListener("click", () => onSite(selected === position ? null : position));
      return button;
    });
    const rest = picture.sites.length - 6;
    legend.replaceChildren(
      ...(sites.length > 0 ? buttons : []),
      ...(rest > 0 ? [chip("rest", "…"), counted(rest, "other call site")] : []),
    );
  };
  const classesSeen = new Set(cells.kind);

  const tool = (text, label, act) =>
    el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  const group = (label, ...children) =>
    el(
      "div",
      { class: "group", role: "group", "aria-label": label },
      el("span", { class: "label" }, label),
      ...children,
    );
  const modes = ["site", "class"].map((mode) => {
    const button = el(
      "button",
      { type: "button", "data-mode": mode, "aria-pressed": String(colouring === mode) },
      mode === "site" ? "call site" : `class (${picture.classes_by})`,
    );
    button.addEventListener("click", () => {
      colouring = mode;
      kind = null;
      for (const other of modes)
        other.setAttribute("aria-pressed", String(other.dataset.mode === mode));
      chips();
      draw();
    });
    return button;
  });
  const bothModes = sites.length > 0 && picture.classes_by && classesSeen.size > 0;
  holder.append(
    el(
      "div",
      { class: "controls" },
      ...(bothModes ? [group("Colour", ...modes)] : []),
      group(
        "Zoom",
        tool("−", "Zoom out", () => zoom(1 / 0.6)),
        tool("+", "Zoom in", () => zoom(0.6)),
        tool("Show all", "Show all", () => show(all)),
      ),
    ),
    legend,
    plane,
    status,
    el(
      "p",
      { class: "note" },
      "Drag over a part to enlarge it, with Shift to move it; Ctrl and the wheel or two fingers " +
        "zoom; a click highlights the call site. " +
        (picture.column_references * picture.row_blocks === 1
          ? "Each reference is drawn."
          : `A cell is ${counted(picture.column_references, "reference")} wide ` +
            `and ${counted(picture.row_blocks, "block")} high.`),
    ),
  );
  chips();
  draw();
  let drawn = [canvas.clientWidth, canvas.clientHeight];
  new ResizeObserver(() => {
    const size = [canvas.clientWidth, canvas.clientHeight];
    if (size[0] !== drawn[0] || size[1] !== drawn[1]) draw();
    drawn = size;
  }).observe(plane);
  themed.push(() => holder.isConnected && (chips(), draw()));

  return {
    select: (position) => {
      selected = position;
      if (position !== null && colouring === "class") kind = null;
      chips();
      draw();
    },
    // The blocks of one file.
    enlarge: (object) => {
      const found = picture.objects.find(([number]) => number === object);
      if (!found) return show(all);
      const [, first, blocks] = found;
      show({ x0: 0, x1: all.x1, y0: first - blocks * 0.05, y1: first + blocks * 1.05 });
    },
  };
};
