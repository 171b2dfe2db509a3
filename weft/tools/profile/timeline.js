// The timeline of a profile: tracks of threads and devices on a canvas, with zoom, search and selection.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("profile-data").textContent);
  const box = document.getElementById("timeline");
  const canvas = box.querySelector("canvas");
  const search = document.getElementById("search");
  const NAMES = 130, ROW = 18, AXIS = 20, GAP = 8, MEMORY = 60;
  const HUES = { matmul: 215, kernel: 140, "library call": 285, "host callback": 0, copy: 45, wait: 20, exchange: 330, sort: 175,
    FFT: 190, loop: 240, branch: 240, call: 215, run: 215, compile: 30, annotation: 300 };

  // --- tracks: each event gets a depth, so that an event lies below the one that contains it

  function nest(events) {
    events.sort((a, b) => a[0] - b[0] || b[1] - a[1] || a[3] - b[3]);
    const open = [];
    let deepest = 0;
    return {
      events: events.map(([begin, duration, item, tasks]) => {
        while (open.length && open[open.length - 1] <= begin) open.pop();
        const event = { begin, end: begin + duration, item: data.items[item], tasks, depth: open.length };
        deepest = Math.max(deepest, event.depth);
        open.push(event.end);
        return event;
      }),
      get rows() { return deepest + 1; },
    };
  }

  const steps = [];
  for (const track of data.tracks) {
    for (const event of track.events || []) {
      if (!event[3] && data.items[event[2]].program !== undefined) steps.push(event);
    }
  }
  let top = AXIS;
  const tracks = data.tracks.map((track) => {
    const own = track.events || steps.filter((e) => track.programs.includes(data.items[e[2]].program));
    const nested = nest(own.slice());
    const placed = { name: track.name, events: nested.events, top, rows: nested.rows };
    top += nested.rows * ROW + GAP;
    return placed;
  });
  const memoryTop = top, height = top + MEMORY + GAP;
  const most = data.memory.reduce((high, [, bytes]) => Math.max(high, bytes), 1);
  const all = tracks.flatMap((track) => track.events);
  const last = Math.max(1, all.reduce((end, e) => Math.max(end, e.end), 0));

  // --- view

  let from = 0, to = last, selected = null, matches = [], place = -1;
  const span = () => to - from;
  const width = () => Math.max(1, box.clientWidth - NAMES);
  const x = (ns) => NAMES + ((ns - from) / span()) * width();
  const show = (begin, end) => {
    const length = Math.min(Math.max(end - begin, 100), last * 1.02);
    from = Math.min(Math.max(begin, -0.01 * last), 1.01 * last - length);
    to = from + length;
    draw();
  };
  const zoom = (factor, at = (from + to) / 2) => show(at - (at - from) * factor, at + (to - at) * factor);
  const move = (share) => show(from + share * span(), to + share * span());

  function spell(ns) {
    const [unit, scale] = ns < 1e3 ? ["ns", 1] : ns < 1e6 ? ["µs", 1e3] : ns < 1e9 ? ["ms", 1e6] : ["s", 1e9];
    return `${(ns / scale).toPrecision(4)} ${unit}`;
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = box.clientWidth * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(box);
    const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft"), rule = style.getPropertyValue("--rule");
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, box.clientWidth, height);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    drawAxis(pen, soft, rule);
    const found = new Set(matches);
    for (const track of tracks) {
      pen.fillStyle = ink;
      pen.fillText(track.name, 6, track.top + ROW / 2, NAMES - 12);
      pen.save();
      pen.beginPath();
      pen.rect(NAMES, track.top, width(), track.rows * ROW);
      pen.clip();
      for (const event of track.events) {
        if (event.end < from || event.begin > to) continue;
        const left = x(event.begin), wide = Math.max(x(event.end) - left, 1), y = track.top + event.depth * ROW;
        const faint = matches.length && !found.has(event);
        const hue = HUES[event.item.kind] ?? 260, light = (isDark ? 38 : 72) + (event.tasks ? (isDark ? -10 : 12) : 0);
        pen.globalAlpha = faint ? 0.25 : 1;
        pen.fillStyle = `hsl(${hue} 55% ${light}%)`;
        pen.fillRect(left, y + 1, wide, ROW - 2);
        if (event === selected) {
          pen.strokeStyle = ink;
          pen.lineWidth = 2;
          pen.strokeRect(left + 1, y + 2, Math.max(wide - 2, 1), ROW - 4);
        }
        if (wide > 30) {
          const start = Math.max(left, NAMES) + 3;
          pen.fillStyle = isDark ? "#fff" : "#111";
          pen.save();
          pen.beginPath();
          pen.rect(left, y, wide - 2, ROW);
          pen.clip();
          pen.fillText(event.tasks ? `${event.item.name} (${event.tasks} tasks)` : event.item.name, start, y + ROW / 2);
          pen.restore();
        }
        pen.globalAlpha = 1;
      }
      pen.restore();
    }
    drawMemory(pen, ink, isDark);
    document.getElementById("range").textContent = `${spell(Math.max(from, 0))} to ${spell(to)}`;
  }

  function drawAxis(pen, soft, rule) {
    const rough = span() / Math.min(8, width() / 80), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    pen.fillStyle = soft;
    pen.strokeStyle = rule;
    pen.lineWidth = 1;
    for (let at = Math.ceil(Math.max(from, 0) / step) * step; at <= to; at += step) {
      pen.beginPath();
      pen.moveTo(x(at), AXIS - 4);
      pen.lineTo(x(at), height);
      pen.stroke();
      pen.fillText(spell(at), x(at) + 3, AXIS / 2);
    }
  }

  function drawMemory(pen, ink, isDark) {
    pen.fillStyle = ink;
    pen.fillText("live memory", 6, memoryTop + ROW / 2, NAMES - 12);
    pen.fillText(`${most.toLocaleString("en")} B`, 6, memoryTop + ROW * 1.5, NAMES - 12);
    pen.fillStyle = isDark ? "#7293cb" : "#396ab1";
    data.memory.forEach(([at, bytes], i) => {
      const next = i + 1 < data.memory.length ? data.memory[i + 1][0] : at;
      if (next < from || at > to) return;
      const left = Math.max(x(at), NAMES), high = (MEMORY * bytes) / most;
      pen.fillRect(left, memoryTop + MEMORY - high, Math.max(x(next) - left, 0.5), high);
    });
  }

  // --- selection

  function select(event) {
    selected = event;
    const details = document.getElementById("details");
    details.textContent = "";
    if (event) {
      const item = event.item, ns = event.end - event.begin;
      const rate = (n) => `${n.toLocaleString("en")}, ${(n / Math.max(ns, 1)).toPrecision(3)} G/s`;
      const facts = [["event", item.name], ["kind", event.tasks ? `${event.tasks} tasks of a ${item.kind}` : item.kind],
        ["takes", `${spell(ns)}, from ${spell(event.begin)}`], ["program", item.in], ["at", item.line && `${item.line}  ${item.text}`],
        ["computes", item.equations], ["collective", item.collective], ["because", item.reason], ["facts", item.facts]];
      if (!event.tasks) {
        facts.push(["FLOPs", item.flops && rate(item.flops)], ["bytes", item.bytes && rate(item.bytes)],
          ["roofline", item.least && `${((100 * item.least) / Math.max(ns, 1)).toFixed(0)} %`]);
      }
      const list = details.appendChild(document.createElement("dl"));
      for (const [name, value] of facts) {
        if (!value) continue;
        list.appendChild(document.createElement("dt")).textContent = name;
        list.appendChild(document.createElement("dd")).textContent = value;
      }
    }
    draw();
  }

  function reveal(event) {
    const length = Math.max(event.end - event.begin, span() / 50);
    if (event.begin < from || event.end > to) show(event.begin - 2 * length, event.begin + 3 * length);
    select(event);
  }

  function eventAt(clientX, clientY) {
    const area = canvas.getBoundingClientRect();
    const px = clientX - area.left, py = clientY - area.top;
    if (px < NAMES) return null;
    const track = tracks.find((t) => py >= t.top && py < t.top + t.rows * ROW);
    if (!track) return null;
    const depth = Math.floor((py - track.top) / ROW);
    const near = (e) => x(e.begin) - 1 <= px && px <= Math.max(x(e.end), x(e.begin) + 1) + 1;
    return track.events.find((e) => e.depth === depth && near(e)) || null;
  }

  function neighbor(step) {
    const track = tracks.find((t) => t.events.includes(selected)) || tracks[0];
    if (!track) return;
    const events = track.events;
    const next = selected ? events.indexOf(selected) + step : 0;
    if (next >= 0 && next < events.length) reveal(events[next]);
  }

  // --- search

  function find() {
    const words = search.value.toLowerCase().trim();
    const text = (e) => `${e.item.name} ${e.item.kind} ${e.item.line || ""} ${e.item.text || ""} ${e.item.collective || ""}`.toLowerCase();
    matches = words ? all.filter((e) => text(e).includes(words)) : [];
    place = -1;
    document.getElementById("matches").textContent = words ? `${matches.length} event${matches.length === 1 ? "" : "s"}` : "";
    draw();
  }

  function nextMatch(step) {
    if (!matches.length) return;
    place = (place + step + matches.length) % matches.length;
    reveal(matches[place]);
  }

  // --- input

  const KEYS = {
    ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
    ArrowUp: () => zoom(0.5), ArrowDown: () => zoom(2), 0: () => show(0, last), "[": () => neighbor(-1), "]": () => neighbor(1),
    Enter: () => nextMatch(1), Escape: () => select(null),
  };
  box.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.altKey || event.metaKey ? undefined : KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === search) return;
    event.preventDefault();
    search.focus();
  });
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") box.focus();
  });
  document.getElementById("zoom-in").addEventListener("click", () => zoom(0.5));
  document.getElementById("zoom-out").addEventListener("click", () => zoom(2));
  document.getElementById("fit").addEventListener("click", () => show(0, last));
  canvas.addEventListener("click", (event) => select(eventAt(event.clientX, event.clientY)));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    const at = from + ((event.offsetX - NAMES) / width()) * span();
    if (event.ctrlKey) zoom(2 ** (event.deltaY / 200), at);
    else move(event.deltaX / width());
  }, { passive: false });
  let dragged = null;
  canvas.addEventListener("pointerdown", (event) => { dragged = event.clientX; });
  window.addEventListener("pointerup", () => { dragged = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (dragged === null) return;
    move((dragged - event.clientX) / width());
    dragged = event.clientX;
  });
  window.addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  if (data.hidden || data.hiddenDevices) {
    const note = box.insertAdjacentElement("afterend", document.createElement("p"));
    const parts = [data.hidden && `${data.hidden} later events`, data.hiddenDevices && `${data.hiddenDevices} more devices`];
    note.textContent = `Not shown: ${parts.filter(Boolean).join(", ")}. Totals below include them.`;
  }
  show(0, last);
})();
