"use strict";
// Draws what the element `plan` says. No number is made here that is not said there.

const said = JSON.parse(document.getElementById("plan").textContent);
const page = document.getElementById("page");
const PALETTE = ["#3b6fd4", "#e08a2c", "#2f9e6b", "#b5469a", "#c9b02c", "#5b5ea6", "#d5553f", "#4aa3b8",
  "#8a6d3b", "#7d8ca3", "#91b83e", "#a35f9f"];

// --- Elements ---------------------------------------------------------------------------------------------------

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of [children].flat(9)) {
    if (child !== null && child !== undefined && child !== false) made.append(child);
  }
  return made;
}
const element = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const drawn = (name, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

function section(id, title, ...children) {
  page.append(element("section", { id }, element("h2", {}, title), children));
}

const tip = element("div", { id: "tip" });
document.body.append(tip);
function tell(event, words) {
  tip.textContent = words;
  tip.style.display = words ? "block" : "none";
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
}
const told = (words) => ({ onmousemove: (event) => tell(event, words), onmouseleave: (event) => tell(event, "") });

// --- Words ------------------------------------------------------------------------------------------------------

function scaled(value, units) {
  const [unit, name] = units.find(([unit]) => Math.abs(value) >= unit) || units[units.length - 1];
  const number = value / unit;
  const digits = Math.abs(number) >= 100 ? 1 : Math.abs(number) >= 10 ? 2 : 3;
  return (value === 0 ? "0" : number.toFixed(digits)) + " " + name;
}
const time = (seconds) => scaled(seconds, [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]]);
const size = (bytes) => Math.abs(bytes) < 1e3 ? Math.round(bytes) + " B" : scaled(bytes, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]);
const percent = (part, whole) => (whole > 0 ? (part / whole * 100).toFixed(1) : "0.0") + " %";
const more = (seconds) => (seconds >= said.seconds ? "+" : "") + ((seconds / said.seconds - 1) * 100).toFixed(1) + " %";
const counted = (count, name) => count + " " + name + (count === 1 ? "" : "s");

const colours = new Map();
function colour(name) {
  if (!colours.has(name)) colours.set(name, PALETTE[colours.size % PALETTE.length]);
  return colours.get(name);
}
const PHASES = { forward: "#3b6fd4", backward: "#e08a2c", gradient: "#2f9e6b", update: "#b5469a" };

function legend(names, of) {
  return element("div", { class: "legend" }, names.map((name) =>
    element("span", {}, element("i", { style: "background:" + of(name) }), name)));
}

function table(heads, rows, numbers) {
  const kind = (column) => (numbers.includes(column) ? { class: "number" } : {});
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, heads.map((head, column) => element("th", kind(column), head)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((cell, column) =>
      element("td", kind(column), cell)))))));
}

// --- What the plan is -------------------------------------------------------------------------------------------

function header() {
  page.append(element("h1", {}, said.title));
  page.append(element("div", { class: "quiet" }, said.facts.map(([about, words]) =>
    element("div", {}, element("b", {}, about), " ", words))));
  const speed = said.speed || {};
  const fullest = said.memory.map(held).reduce((a, b) => (b.bytes / b.capacity > a.bytes / a.capacity ? b : a));
  const cards = [
    ["step, predicted", time(said.seconds), said.proof],
    said.simulated && ["step, simulated", time(said.simulated), more(said.simulated) + " of the estimate"],
    speed.tokens_per_second && ["tokens/s", Math.round(speed.tokens_per_second).toLocaleString("en"),
      Math.round(speed.tokens_per_second_per_device).toLocaleString("en") + " a device"],
    speed.mfu && ["MFU", percent(speed.mfu, 1), speed.tflops_per_device.toFixed(1) + " TFLOP/s a device; " +
      percent(speed.mfu_causal, 1) + " with what masks let through"],
    ["memory", size(fullest.bytes), percent(fullest.bytes, fullest.capacity) + " of the fullest device"],
  ];
  page.append(element("div", { class: "cards" }, cards.filter(Boolean).map(([about, number, note]) =>
    element("div", { class: "card" }, element("span", { class: "quiet" }, about), element("b", {}, number),
      element("span", { class: "quiet" }, note)))));
}

function terms() {
  const all = said.terms.filter((it) => it.seconds > 0).sort((a, b) => b.seconds - a.seconds);
  const sum = all.reduce((sum, it) => sum + it.seconds, 0);
  const bar = element("div", { class: "bar" }, all.map((it) => element("span", {
    style: "width:" + it.seconds / sum * 100 + "%;background:" + colour(it.name),
    ...told(it.name + ": " + time(it.seconds) + ", " + percent(it.seconds, said.seconds) + " of the step"),
  })));
  const rows = all.map((it) => [it.name, time(it.seconds), percent(it.seconds, said.seconds)]);
  if (said.hidden_seconds > 0) {
    rows.push(["hidden: communication that runs beside computing, off the sum", "-" + time(said.hidden_seconds),
      percent(said.hidden_seconds, said.seconds)]);
  }
  section("time", "Where the time goes", bar, legend(all.map((it) => it.name), colour),
    element("details", {}, element("summary", {}, "in numbers"), element("div", {},
      table(["what", "time", "of the step"], rows, [1, 2]))));
}

// --- Memory -----------------------------------------------------------------------------------------------------

function held(group) {
  return { ...group, bytes: group.holdings.reduce((sum, it) => sum + it.bytes, 0) };
}

function devicesOf(group) {
  const last = group.first_device + group.devices - 1;
  return last === group.first_device ? "device " + last : "devices " + group.first_device + " to " + last;
}

function memory() {
  const groups = said.memory.map(held);
  const names = [...new Set(groups.flatMap((group) => group.holdings.filter((it) => it.bytes > 0)
    .map((it) => it.kind)))];
  const bars = groups.map((group) => {
    const whole = Math.max(group.capacity, group.bytes);
    const free = group.capacity - group.bytes;
    return element("div", { class: "fit" },
      element("div", { class: "row" }, element("b", {}, devicesOf(group)),
        element("span", {}, size(group.bytes) + " of " + size(group.capacity)),
        element("span", { class: free < 0 ? "bad" : "good" },
          free < 0 ? size(-free) + " too many" : "fits, " + size(free) + " free")),
      element("div", { class: "bar" }, group.holdings.filter((it) => it.bytes > 0).map((it) =>
        element("span", { style: "width:" + it.bytes / whole * 100 + "%;background:" + colour(it.kind),
          ...told(it.kind + ": " + size(it.bytes) + ", " + percent(it.bytes, group.capacity)) })),
      free < 0 && element("div", { class: "limit", style: "left:" + group.capacity / whole * 100 + "%" })));
  });
  const less = said.limits.filter((it) => it.seconds && it.bytes < 0.99 * groups[0].bytes)
    .sort((a, b) => b.bytes - a.bytes)[0];
  const step = element("p", { id: "less" }, less ? ["The cheapest step that frees memory: ",
    element("b", {}, size(groups[0].bytes - less.bytes) + " less"), " for ", element("b", {}, more(less.seconds)),
    " of time: ", less.strategy.join("; ")] : said.limits.length ? "No plan on this mesh holds less." :
    said.programs.length === 1 ? ["The cheapest step that frees memory is found by ",
      element("code", {}, said.commands.alternatives)] : ["Less memory is planned for ",
      element("a", { href: "#again" }, "anew"), "."]);
  section("memory", "What devices hold", bars, legend(names, colour), step);
}

// --- Devices ----------------------------------------------------------------------------------------------------

const programOf = (device) => said.programs.find((program) => program.first_devices.some((first) =>
  device >= first && device < first + program.devices));

/// The devices that differ from one in some axes of its program's mesh only.
function group(device, axes) {
  const program = programOf(device);
  if (!program) return [device];
  const first = program.first_devices.find((it) => device >= it && device < it + program.devices);
  let strides = new Map(), stride = 1;
  for (const [name, extent] of [...program.axes].reverse()) {
    strides.set(name, [stride, extent]);
    stride *= extent;
  }
  let all = [device - first];
  for (const axis of axes) {
    const [stride, extent] = strides.get(axis) || [1, 1];
    all = all.flatMap((it) => {
      const start = it - Math.floor(it / stride) % extent * stride;
      return Array.from({ length: extent }, (_, place) => start + place * stride);
    });
  }
  return all.map((it) => it + first);
}

function devices() {
  const count = said.machine.devices, perNode = said.machine.devices_per_node;
  const nodes = Math.ceil(count / perNode), cell = count > 2048 ? 7 : count > 256 ? 10 : 16;
  const columns = Math.min(perNode, 8), lines = Math.ceil(perNode / columns);
  const wide = columns * cell + 8, high = lines * cell + 8, across = Math.max(1, Math.floor(1120 / wide));
  const picture = drawn("svg", { class: "devices", width: Math.min(nodes, across) * wide,
    height: Math.ceil(nodes / across) * high });
  const cells = [];
  for (let node = 0; node < nodes; node++) {
    const x = node % across * wide, y = Math.floor(node / across) * high;
    picture.append(drawn("rect", { class: "node", x: x + 1.5, y: y + 1.5, width: wide - 5, height: high - 5, rx: 3 }));
    for (let place = 0; place < perNode && node * perNode + place < count; place++) {
      const rank = node * perNode + place;
      const made = drawn("rect", { class: "device", "data-rank": rank, width: cell - 2, height: cell - 2, rx: 2,
        x: x + 4 + place % columns * cell, y: y + 4 + Math.floor(place / columns) * cell });
      cells.push(made);
      picture.append(made);
    }
  }
  let chosen = 0, axes = [];
  const words = element("p", { id: "group" });
  const exchanges = element("div", { id: "exchanges" });
  const buttons = element("div", { class: "row", id: "axes" });
  function show() {
    const members = new Set(group(chosen, axes));
    cells.forEach((cell, rank) => cell.setAttribute("class", "device" + (rank === chosen ? " chosen" :
      members.has(rank) ? " group" : "")));
    const spans = new Set([...members].map((it) => Math.floor(it / perNode))).size;
    words.textContent = "Device " + chosen + ": " + (axes.length ? "it exchanges with " +
      counted(members.size - 1, "other device") + " along " + axes.join(", ") + ", " + (spans === 1 ?
        "all in its node." : "in " + spans + " nodes.") : "choose an axis to see with whom it exchanges.");
    const program = programOf(chosen);
    buttons.replaceChildren(element("span", { class: "quiet" }, program ? program.name + ", axes" : "no program"),
      ...(program ? program.axes : []).map(([name, extent]) => element("button", {
        class: axes.includes(name) ? "on" : null, "data-axis": name, onclick: () => {
          axes = axes.includes(name) ? axes.filter((it) => it !== name) : [...axes, name];
          show();
        } }, name + " = " + extent)));
    exchanges.replaceChildren(...exchanged(chosen));
  }
  /// What the kind of ranks exchanges of which a device is, most time first.
  function exchanged(device) {
    if (!said.timeline) return [element("p", { class: "quiet" }, said.why_no_timeline)];
    const program = programOf(device);
    const kinds = said.timeline.ranks.filter((it) => programOf(it.ranks[0]) === program);
    const rank = kinds.find((it) => it.ranks.includes(device)) || kinds[0];
    if (!rank || !rank.with.length) return [element("p", { class: "quiet" }, "It exchanges nothing.")];
    const all = [...rank.with].sort((a, b) => b.seconds - a.seconds);
    const longest = all[0].seconds;
    const rows = all.map((it) => {
      const place = it.axes ? group(device, it.axes) : [];
      const inside = it.axes && new Set(place.map((it) => Math.floor(it / perNode))).size === 1;
      return [
        it.axes ? element("button", { "data-axes": it.axes.join(","), onclick: () => { axes = it.axes; show(); } },
          it.axes.join(", ")) : counted(it.size, "rank"),
        it.kind, it.phase, it.axes ? (inside ? "within a node" : "between nodes") : "", it.count, size(it.bytes),
        time(it.seconds), time(it.exposed),
        element("span", { class: "small", style: "width:" + Math.max(2, it.seconds / longest * 110) + "px" }),
      ];
    });
    return [table(["along", "what", "for", "where", "times", "received", "time", "exposed", ""], rows, [4, 5, 6, 7])];
  }
  picture.addEventListener("click", (event) => {
    const rank = event.target.getAttribute("data-rank");
    if (rank !== null) { chosen = Number(rank); axes = axes.filter((it) => programOf(chosen)?.axes.some(([name]) =>
      name === it)); show(); }
  });
  section("devices", "Devices: " + said.machine.name, element("p", { class: "quiet" }, counted(nodes, "node") +
    " of " + counted(perNode, "device") + ". Choose a device and axes: its group lights up. Times and bytes are of " +
    "one device in a step, simulated."), element("div", { class: "scroll" }, picture), buttons, words, exchanges);
  show();
}

// --- The model --------------------------------------------------------------------------------------------------

function chips(words) {
  return words.split(/, (?![^(]*\))/).map((it) => element("span", { class: "chip" }, it));
}

const whole = (it) => it.seconds + it.moves.reduce((sum, move) => sum + move.seconds, 0);

/// The operations of a block by the layer in their names, such as that of `model.layers.7.mlp`; layers that are
/// computed alike stand once.
function layers(block) {
  const found = new Map();
  for (const it of block.operations) {
    const [, before, number] = it.name.match(/^(.*?)(?:^|\.)(\d+)\./) || [null, "", null];
    const name = number === null ? "" : (before ? before + "." : "") + number;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(it);
  }
  const kinds = new Map();
  for (const [name, operations] of found) {
    const form = name.replace(/\d+$/, "*") + JSON.stringify(operations.map((it) => [it.kind, it.choice, it.phase,
      it.name.replace(name, "*").replace(/\d+$/, ""), it.moves.map((move) => [move.moves, move.bytes])]));
    if (!kinds.has(form)) kinds.set(form, { names: [], operations });
    kinds.get(form).names.push(name);
  }
  return [...kinds.values()];
}

/// Operations as rows; those of many layers folded.
function content(block) {
  const kinds = layers(block);
  const table = (operations_) => element("table", {}, element("tbody", {}, operations({ ...block,
    operations: operations_ })));
  if (kinds.length === 1 || block.count > 1) return table(block.operations);
  return kinds.map(({ names, operations: all }) => {
    const body = element("div", {});
    const sum = all.reduce((sum, it) => sum + whole(it), 0);
    const title = names[0] === "" ? "outside of layers" : names.length === 1 ? names[0] :
      names[0] + " and " + (names.length - 1) + " like it, to " + names[names.length - 1];
    const made = element("details", { class: "layer", ontoggle: () => {
      if (made.open && !body.firstChild) body.append(table(all));
    } }, element("summary", {}, title + ", " + time(sum) + (names.length > 1 ? " each" : ""), element("span",
      { class: "quiet" }, "  " + counted(all.length, "operation"))), body);
    return made;
  });
}

function operations(block) {
  const longest = Math.max(...block.operations.map(whole));
  return block.operations.flatMap((it) => {
    const moves = it.moves.map((move) => element("tr", { class: "quiet" }, element("td", {}, "move"),
      element("td", { class: "number" }, time(move.seconds)), element("td", {}), element("td", {},
        move.moves.join(", ") + " (" + (move.bytes ? size(move.bytes) : "nothing sent") + ") of " + move.value)));
    const row = element("tr", { class: "operation", tabindex: 0, onclick: () => detail(row, it, block),
      onkeydown: (event) => event.key === "Enter" && detail(row, it, block) },
      element("td", {}, it.kind, it.phase && element("span", { class: "quiet" }, " " + it.phase)),
      element("td", { class: "number" }, time(it.seconds)),
      element("td", {}, element("span", { class: "small", style: "width:" +
        Math.max(1, whole(it) / longest * 90) + "px;background:" + colour(it.kind) })),
      element("td", {}, element("code", {}, it.name), " ", chips(it.choice)));
    return [...moves, row];
  });
}

/// What is known of an operation: its partition, and what a step takes where it is computed otherwise.
function detail(row, it, block) {
  if (row.nextSibling?.classList?.contains("more")) { row.nextSibling.remove(); return; }
  const other = said.alternatives.find((one) => one.program === block.program && one.block === block.name &&
    one.origin === it.name);
  const price = other && (other.price.seconds ? time(other.price.seconds) + " (" + more(other.price.seconds) + ")" :
    other.price.missing_bytes ? "does not fit: " + size(other.price.missing_bytes) + " too few" :
    other.price.impossible);
  row.after(element("tr", { class: "more" }, element("td", { colspan: 4 },
    element("div", {}, "partition ", element("code", {}, it.partition)),
    element("div", {}, "a step in which it is not computed so: ", price || ["not priced; ",
      element("code", {}, said.commands.alternatives)]),
    other?.command && element("div", {}, "how it is computed then: ", element("code", {}, other.pins.map((pin) =>
      pin.split("=").slice(1).join("=")).filter((it, place, all) => all.indexOf(it) === place).join(", ")), " ",
      element("button", { class: "next", "data-command": other.command, onclick: () => ask({ way: 0,
        pins: [...asked.pins.filter((it) => !other.pins.includes(it)), ...other.pins] }) }, "plan it so"),
      element("button", { class: "copy", onclick: (event) => copy(event.target, other.command) }, "copy the command")),
    other && !other.command && other.pins.length > 0 && element("div", { class: "quiet" }, "pins that say how it is " +
      "computed then: ", element("code", {}, other.pins.join(", ")), "; of generation they are of both steps, and this is " +
      "the price of one"),
    other?.why_no_pin && element("div", { class: "quiet" }, "no pin says how it is computed then: " + other.why_no_pin),
    element("div", {}, "in other words: ", element("code", {}, "--pin '" + pinOf(it) + "'"), " ",
      said.again.length > 0 && element("button", { class: "pin", onclick: () => pin(pinOf(it)) }, "pin it")))));
}

function model() {
  const programs = said.programs.map((program, number) => {
    const blocks = program.blocks.map((it) => {
      const block = { ...it, program: program.name };
      const sum = block.operations.reduce((sum, it) => sum + whole(it), 0);
      const body = element("div", {});
      const made = element("details", { class: "block", ontoggle: () => {
        // Rows are made when they are looked at: a page of many stages opens at once.
        if (made.open && !body.firstChild) body.append(...[content(block)].flat());
      } }, element("summary", {}, "block " + block.name + ", " + (block.count === 1 ? "once" : block.count + " times") +
        ", " + time(sum) + " each", element("span", { class: "quiet" }, "  " +
        counted(block.operations.length, "operation") + (block.kept ? "; " + block.kept : ""))), body);
      return made;
    });
    const strategy = program.strategy.map((it) => element("span", { class: "chip" }, it));
    return element("details", { class: "program", open: number === 0 }, element("summary", {},
      element("b", {}, program.name), " on mesh " + program.axes.map(([name, extent]) => name + "=" + extent).join(",") +
      ", " + time(program.seconds)), element("div", {}, element("p", {}, strategy), blocks));
  });
  section("model", "What each device computes", element("p", { class: "quiet" }, "Blocks that are computed alike " +
    "stand once. Choose an operation to see its partition and what else it could be."), programs);
}

// --- Schedule ---------------------------------------------------------------------------------------------------

function schedule() {
  const all = said.timeline;
  if (!all) { section("schedule", "What ranks do when", element("p", { class: "quiet" }, said.why_no_timeline)); return; }
  const full = all.ranks.find((it) => it.instructions);
  let from = 0, to = all.length;
  const lane = 26, streams = [...new Set(full.instructions.map((it) => it[2]))].sort((a, b) => a - b);
  const top = all.ranks.length * lane, high = top + 30 + streams.length * 22;
  const canvas = element("canvas", { height: high, id: "lanes" });
  const context = canvas.getContext("2d");
  const left = 110;
  const place = (at) => left + (at - from) / (to - from) * (canvas.width - left - 6);
  function draw() {
    canvas.width = canvas.clientWidth || 1100;
    const ink = getComputedStyle(document.body).color;
    context.clearRect(0, 0, canvas.width, high);
    context.font = "11px system-ui, sans-serif";
    const box = (start, end, y, height, paint) => {
      const x = Math.max(left, place(start)), last = Math.min(canvas.width - 6, place(end));
      if (last <= left || x >= canvas.width - 6) return;
      context.fillStyle = paint;
      context.fillRect(x, y, Math.max(0.6, last - x), height);
    };
    all.ranks.forEach((rank, number) => {
      const y = number * lane;
      context.fillStyle = ink;
      context.fillText("rank " + rank.ranks[0] + (rank.ranks.length > 1 ? " +" + (rank.ranks.length - 1) : ""), 2, y + 14);
      for (const [start, end, phase, micro] of rank.turns) {
        box(start, end, y + 2, 15, PHASES[phase]);
        if (place(end) - place(start) > 14 && place(start) >= left) {
          context.fillStyle = "#ffffff";
          context.fillText(String(micro), place(start) + 3, y + 13);
        }
      }
      for (const [start, end] of rank.exchanged) box(start, end, y + 18, 4, "#d5553f");
    });
    context.fillStyle = ink;
    context.fillText("rank " + full.ranks[0] + ", instructions" + (full.left_out ? ", the first " +
      full.instructions.length : ""), 2, top + 18);
    for (const [start, length, stream, name, phase] of full.instructions) {
      const y = top + 26 + streams.indexOf(stream) * 22;
      box(start, start + length, y, 17, stream === 0 ? PHASES[phase] : colour(all.names[name]));
    }
    streams.forEach((stream, number) => {
      context.fillStyle = ink;
      context.fillText(all.streams[stream], 2, top + 38 + number * 22);
    });
  }
  const zoom = (factor, at) => {
    const length = Math.min(all.length, (to - from) * factor), centre = at ?? (from + to) / 2;
    from = Math.max(0, Math.min(all.length - length, centre - (centre - from) / (to - from) * length));
    to = from + length;
    draw();
  };
  const at = (event) => from + (event.offsetX * canvas.width / canvas.clientWidth - left) /
    (canvas.width - left - 6) * (to - from);
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event)); },
    { passive: false });
  let dragged = null;
  canvas.addEventListener("mousedown", (event) => { dragged = [event.clientX, from]; });
  addEventListener("mouseup", () => { dragged = null; });
  canvas.addEventListener("mousemove", (event) => {
    if (dragged) {
      const by = (dragged[0] - event.clientX) / canvas.clientWidth * (to - from), length = to - from;
      from = Math.max(0, Math.min(all.length - length, dragged[1] + by));
      to = from + length;
      draw();
    }
    tell(event, under(event));
  });
  canvas.addEventListener("mouseleave", (event) => tell(event, ""));
  function under(event) {
    const moment = at(event), y = event.offsetY;
    const rank = all.ranks[Math.floor(y / lane)];
    const span = (start, end) => time(start / 1e9) + " to " + time(end / 1e9) + " (" + time((end - start) / 1e9) + ")";
    if (y < top && rank) {
      const turn = rank.turns.find(([start, end]) => moment >= start && moment < end);
      return turn ? turn[2] + " of micro-batch " + turn[3] + (turn[4] === null ? "" : ", stage " + turn[4]) + "\n" +
        span(turn[0], turn[1]) : "";
    }
    const stream = streams[Math.floor((y - top - 26) / 22)];
    const found = full.instructions.find((it) => it[2] === stream && moment >= it[0] && moment < it[0] + it[1]);
    return found ? all.names[found[3]] + ", " + found[4] + "\n" + span(found[0], found[0] + found[1]) : "";
  }
  const rows = all.ranks.map((it) => ["rank " + it.ranks[0] + (it.ranks.length > 1 ? " and " + (it.ranks.length - 1) + " like it" : ""),
    it.stages.join(", "), time(it.computing / 1e9), time(it.exchanging / 1e9), time(it.exposed / 1e9),
    percent(it.computing, all.length)]);
  section("schedule", "What ranks do when", element("div", { class: "row" },
    element("button", { id: "nearer", onclick: () => zoom(0.5) }, "nearer"),
    element("button", { onclick: () => zoom(2) }, "farther"),
    element("button", { onclick: () => { from = 0; to = all.length; draw(); } }, "all"),
    element("span", { class: "quiet" }, time(all.length / 1e9) + " in all; the wheel zooms, dragging moves")),
    canvas, legend(Object.keys(PHASES), (name) => PHASES[name]),
    element("p", { class: "quiet" }, "Under each rank, in red, when it exchanges anything."),
    table(["ranks", "stages", "computing", "exchanging", "exposed", "utilised"], rows, [2, 3, 4, 5]), held_over_time(full));
  draw();
  addEventListener("resize", draw);
}

function held_over_time(rank) {
  if (!rank.memory.length) return null;
  const width = 1100, high = 120, most = Math.max(...rank.memory.map((it) => it[1]));
  const points = rank.memory.map(([at, bytes]) => (60 + at / said.timeline.length * (width - 70)).toFixed(1) + "," +
    (high - 20 - bytes / most * (high - 40)).toFixed(1));
  return element("div", { class: "scroll" }, element("p", { class: "quiet" }, "What rank " + rank.ranks[0] +
    " holds over a step, " + size(most) + " at most."), drawn("svg", { width: "100%", viewBox: "0 0 " + width + " " + high },
    drawn("line", { class: "axis", x1: 60, x2: width - 10, y1: high - 20, y2: high - 20 }),
    drawn("polyline", { points: points.join(" "), fill: "none", stroke: PALETTE[0], "stroke-width": 1.5 }),
    drawn("text", { x: 0, y: 26 }, size(most)), drawn("text", { x: 40, y: high - 20 }, "0")));
}

// --- Memory against time, and what else was looked at -----------------------------------------------------------

function limits() {
  const now = held(said.memory[0]);
  const points = [...said.limits.filter((it) => it.seconds), { bytes: now.bytes, seconds: said.seconds,
    strategy: said.programs[0].strategy, own: true }].sort((a, b) => a.bytes - b.bytes);
  const none = said.limits.filter((it) => it.impossible);
  const price = element("input", { id: "price", type: "number", min: 0, step: "0.01", size: 6,
    placeholder: "e.g. 2.50", oninput: () => draw() });
  const holder = element("div", {});
  /// What a step costs, where a price is given: seconds of all devices.
  const cost = (seconds) => seconds / 3600 * said.machine.devices * Number(price.value);
  const dollars = (it) => "$" + (it < 0.001 ? it.toExponential(2) : it.toPrecision(3));
  function draw() {
    const paid = Number(price.value) > 0;
    const width = 760, high = 260, left = 80, bottom = 40;
    const x = (bytes) => left + bytes / points[points.length - 1].bytes * 0.95 * (width - left - 20);
    const most = Math.max(...points.map((it) => it.seconds)), least = said.lower_bound ?? said.seconds;
    const low = Math.min(least, said.seconds) * 0.97, high_ = most * 1.02;
    const y = (seconds) => high - bottom - (seconds - low) / (high_ - low) * (high - bottom - 20);
    const bound = said.lower_bound !== null && [
      drawn("line", { x1: left, x2: width - 20, y1: y(least), y2: y(least), stroke: PALETTE[2], "stroke-dasharray": "6 4" }),
      drawn("text", { x: left + 6, y: y(least) - 4 }, "proven bound " + time(least))];
    const path = points.map((it) => x(it.bytes).toFixed(1) + "," + y(it.seconds).toFixed(1)).join(" ");
    // One point is no curve.
    const curve = points.length > 1 && element("div", { class: "scroll" }, drawn("svg", { width, height: high, id: "pareto" },
      drawn("line", { class: "axis", x1: left, x2: width - 20, y1: high - bottom, y2: high - bottom }),
      drawn("line", { class: "axis", x1: left, x2: left, y1: 10, y2: high - bottom }), bound,
      drawn("polyline", { points: path, fill: "none", stroke: PALETTE[9] }),
      points.map((it) => drawn("circle", { cx: x(it.bytes), cy: y(it.seconds), r: it.own ? 7 : 5,
        fill: it.own ? PALETTE[1] : PALETTE[0], ...told(size(it.bytes) + ", " + time(it.seconds) + " (" +
        more(it.seconds) + ")\n" + it.strategy.join("; ")) })),
      points.map((it) => drawn("text", { class: "quiet", x: x(it.bytes) - 20, y: high - bottom + 16 }, size(it.bytes))),
      drawn("text", { x: 0, y: 20 }, time(high_)), drawn("text", { x: 0, y: high - bottom }, time(low)),
      drawn("text", { x: width / 2 - 60, y: high - 6 }, "memory of a device")));
    const tokens = paid && said.speed?.tokens_per_step;
    const cells = (it) => [size(it.bytes), time(it.seconds), it.own ? "this plan" : more(it.seconds),
      paid && dollars(cost(it.seconds)), tokens && dollars(cost(it.seconds) / tokens * 1e6), it.strategy.join("; "),
      it.command ? element("button", { class: "take", "data-command": it.command, onclick: () =>
        ask({ way: 0, memory: String(it.capacity) }) }, "plan it") : ""];
    const given = (all) => all.filter((it) => it !== false && it !== null && it !== undefined);
    holder.replaceChildren(...given([curve, table(given(["memory", "step", "", paid && "a step", tokens &&
      "10^6 tokens", "how", ""]), points.map((it) => given(cells(it))), [0, 1, 2])]));
  }
  draw();
  const refused = none.map((it) => element("p", { class: "quiet" }, "With " + size(it.capacity) + ": " + it.impossible));
  section("limits", "Memory against time", element("p", { class: "quiet" }, said.limits.length ?
    "The same mesh and model with other memory, each planned anew." : "This plan alone was priced."),
    element("div", { class: "row" }, element("label", { for: "price" }, "$ for a device and hour"), price), holder, refused);
}

function otherwise() {
  if (!said.otherwise.length) return;
  const rows = said.otherwise.map((it) => [it.manner, it.price.seconds ? time(it.price.seconds) :
    it.price.missing_bytes ? "does not fit: " + size(it.price.missing_bytes) + " too few" : it.price.impossible,
    it.price.seconds ? more(it.price.seconds) : "", it.command ? element("button", { class: "copy", "data-command":
    it.command, onclick: (event) => copy(event.target, it.command) }, "copy the command") : ""]);
  section("otherwise", "What is usually done, by the same prices", table(["", "step", "", ""], [["this plan",
    time(said.seconds), "", ""], ...rows], [1, 2]));
}

// --- Planned otherwise ------------------------------------------------------------------------------------------

const asked = { way: 0, memory: "", pins: [] };
let askedIsShown = () => {};

/// Asks for a plan with other limits or pins.
function ask(more) {
  Object.assign(asked, more);
  askedIsShown();
  document.getElementById("again").scrollIntoView();
}
const pinOf = (it) => it.name + "=" + it.partition;
const pin = (text) => ask({ pins: [...asked.pins.filter((it) => it !== text), text] });

/// The command that plans again, which is given with what is kept of this plan, what is asked for besides.
function again() {
  if (!said.again.length) return;
  const quoted = (it) => "'" + it.replaceAll("'", "'\\''") + "'";
  const command = element("code", { id: "command" });
  const ways = element("select", { id: "way", onchange: () => ask({ way: Number(ways.value) }) }, said.again.map((it, way) =>
    element("option", { value: way }, it.kept)));
  const limit = element("input", { id: "limit", size: 12, placeholder: "e.g. 60GiB", oninput: () => {
    asked.memory = limit.value.trim();
    askedIsShown();
  } });
  const pins = element("div", { class: "row", id: "pins" });
  askedIsShown = () => {
    ways.value = asked.way;
    if (limit.value.trim() !== asked.memory) limit.value = asked.memory;
    const memory = asked.memory || String(said.again[asked.way].memory ?? "");
    command.textContent = [said.again[asked.way].command, memory && "--memory " + (/^[\w.]+$/.test(memory) ?
      memory : quoted(memory)), ...asked.pins.map((it) => "--pin " + quoted(it))].filter(Boolean).join(" ");
    pins.replaceChildren(...asked.pins.map((it) => element("button", { title: "let it be chosen", onclick: () =>
      ask({ pins: asked.pins.filter((one) => one !== it) }) }, it + " ×")));
  };
  section("again", "Plan it otherwise", element("p", { class: "quiet" }, "The command plans this model anew, with the " +
    "options that a plan does not say (--in-time, --phases, --for) at their defaults. Operations are pinned above."),
    element("div", { class: "row" }, element("label", { for: "way" }, "kept"), ways, element("label", { for: "limit" },
      "memory of a device"), limit), pins, element("div", { class: "row" }, command, element("button", { class: "copy",
      onclick: (event) => copy(event.target, command.textContent) }, "copy")));
  askedIsShown();
}

// --- Elsewhere --------------------------------------------------------------------------------------------------

async function copy(button, text) {
  try { await navigator.clipboard.writeText(text); } catch {
    // Pages that are files may not write to the clipboard by themselves.
    const area = element("textarea", {});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "copied";
}

function exports_() {
  if (!said.exports.length) return;
  const body = element("div", {});
  const buttons = said.exports.map((it) => element("button", { "data-target": it.target, onclick: () => show(it) }, it.title));
  function show(chosen) {
    buttons.forEach((button) => button.classList.toggle("on", button.dataset.target === chosen.target));
    body.replaceChildren(element("p", {}, chosen.runs), ...chosen.lost.map((it) => element("p", { class: "quiet" },
      "lost: " + it)), ...chosen.files.map((file) => element("div", {}, element("div", { class: "row" },
      element("code", {}, file.name), element("button", { class: "copy", onclick: (event) => copy(event.target, file.text) },
        "copy")), element("pre", {}, file.text))), element("p", { class: "quiet" }, "with what it costs there: ",
      element("code", {}, "shardloom export " + said.path + " --to " + chosen.target + " -o DIR")));
  }
  section("exports", "The same elsewhere", element("div", { class: "row" }, buttons), body);
  show(said.exports[0]);
}

function commands() {
  section("commands", "To go on", Object.values(said.commands).map((it) => element("p", {}, element("code", {}, it))));
}

header();
terms();
memory();
devices();
model();
schedule();
limits();
otherwise();
again();
exports_();
commands();
