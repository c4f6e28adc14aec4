"use strict";
// What can be touched: charts tell the values under the pointer, maps show images and neighbours, a live page follows
// its runs. Everything shown is put in as text or pixels, never as markup.
(() => {
  const colour = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();
  const make = (tag, name, words) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (words !== undefined) element.textContent = words;
    return element;
  };

  // Charts ----------------------------------------------------------------------------------------------------------
  const BOX = { left: 50, right: 426, top: 12, bottom: 206 };
  const shorten = (value) => String(Number(value.toPrecision(4)));

  function touchChart(chart) {
    const [x0, x1] = chart.dataset.x.split(",").map(Number);
    const [y0, y1, log] = chart.dataset.y.split(",").map(Number);
    const curves = [...chart.querySelectorAll("polyline[data-name]")].map((line) => ({
      name: line.dataset.name,
      points: line.getAttribute("points").split(" ").map((pair) => pair.split(",").map(Number)),
    }));
    const cross = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cross.setAttribute("class", "cross");
    cross.setAttribute("y1", BOX.top);
    cross.setAttribute("y2", BOX.bottom);
    cross.style.display = "none";
    chart.append(cross);
    const line = make("p", "readout");
    const readout = line.appendChild(make("span"));
    chart.after(line);
    const height = (y) => {
      const share = (BOX.bottom - y) / (BOX.bottom - BOX.top);
      return log ? 10 ** (Math.log10(y0) + share * (Math.log10(y1) - Math.log10(y0))) : y0 + share * (y1 - y0);
    };
    chart.addEventListener("pointermove", (event) => {
      const frame = chart.getBoundingClientRect();
      const x = ((event.clientX - frame.left) / frame.width) * 440;
      const near = curves.map((curve) => ({
        name: curve.name,
        at: curve.points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best)),
      }));
      if (!near.length) return;
      const at = near[0].at[0];
      cross.setAttribute("x1", at);
      cross.setAttribute("x2", at);
      cross.style.display = "";
      const where = x0 + ((at - BOX.left) / (BOX.right - BOX.left)) * (x1 - x0);
      const told = near.slice(0, 12).map(({ name, at }) => `${name} ${shorten(height(at[1]))}`);
      readout.textContent = `at ${shorten(where)}: ${told.join(" · ")}`;
    });
    chart.addEventListener("pointerleave", () => {
      cross.style.display = "none";
      readout.textContent = "";
    });
  }

  // Maps ------------------------------------------------------------------------------------------------------------
  const unpack = (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Uint16Array(bytes.buffer);
  };

  // A class has a colour and a form, so that it is told apart without colour too.
  function mark(pen, kind, x, y, size) {
    pen.fillStyle = kind.colour;
    pen.beginPath();
    if (kind.form === 1) pen.rect(x - size * 0.85, y - size * 0.85, size * 1.7, size * 1.7);
    else if (kind.form === 2) {
      pen.moveTo(x, y - size * 1.2);
      pen.lineTo(x + size * 1.1, y + size * 0.8);
      pen.lineTo(x - size * 1.1, y + size * 0.8);
    } else if (kind.form === 3) {
      pen.moveTo(x, y - size * 1.25);
      pen.lineTo(x + size * 1.25, y);
      pen.lineTo(x, y + size * 1.25);
      pen.lineTo(x - size * 1.25, y);
    } else pen.arc(x, y, size, 0, 7);
    pen.fill();
  }

  class Scatter {
    constructor(canvas, map, set, sprite) {
      Object.assign(this, { canvas, map, set, sprite });
      this.x = unpack(map.x);
      this.y = unpack(map.y);
      this.near = unpack(map.neighbours);
      this.labels = set.labels ? unpack(set.labels) : null;
      this.looked = canvas.parentElement.querySelector(".looked");
      this.chosen = -1;
      this.pinned = false;
      this.only = -1;
      this.kept = null; // the points that a search or a lasso left
      this.lasso = null;
      this.find(canvas.parentElement.querySelector(".find"));
      this.legend(canvas.parentElement.querySelector(".classes"));
      this.listen();
      this.paint();
    }

    kind(label) {
      const form = Math.floor(label / 8 + label) % 4;
      if (!this.set.classes || this.set.classes.length <= 8) return { colour: colour(this.canvas, `--s${label % 8}`), form };
      const light = matchMedia("(prefers-color-scheme: dark)").matches ? 66 : 42; // steps of the golden angle stay apart
      return { colour: `hsl(${(label * 137.508) % 360} 70% ${light}%)`, form };
    }

    legend(place) {
      place.textContent = "";
      if (!this.set.classes) return;
      this.set.classes.slice(0, 40).forEach((name, label) => {
        const button = make("button", "", "");
        button.type = "button";
        button.setAttribute("aria-pressed", "false");
        const sign = make("canvas");
        sign.width = sign.height = 24;
        mark(sign.getContext("2d"), this.kind(label), 12, 12, 8);
        button.append(sign, make("span", "", name));
        button.addEventListener("click", () => {
          this.only = this.only === label ? -1 : label;
          for (const other of place.children) other.setAttribute("aria-pressed", "false");
          button.setAttribute("aria-pressed", String(this.only === label));
          this.paint();
        });
        place.append(button);
      });
    }

    lit(index) {
      return (this.only < 0 || (this.labels && this.labels[index] === this.only)) && (!this.kept || this.kept.has(index));
    }

    find(place) {
      const [box, count] = [place.querySelector("input"), place.querySelector("span")];
      box.addEventListener("input", () => {
        const text = box.value.trim().toLowerCase();
        const found = this.set.names.flatMap((name, index) => (name.toLowerCase().includes(text) ? [index] : []));
        this.keep(text ? new Set(found) : null);
        count.textContent = text ? `${found.length} of ${this.set.names.length}` : "";
      });
    }

    keep(indices) {
      this.kept = indices;
      this.choose(-1, false);
      this.paint();
      this.tell();
    }

    encircled() {
      const pen = this.canvas.getContext("2d");
      const path = new Path2D();
      this.lasso.forEach(([x, y], place) => (place ? path.lineTo(x, y) : path.moveTo(x, y)));
      pen.setTransform(1, 0, 0, 1, 0, 0);
      return new Set([...this.x.keys()].filter((index) => pen.isPointInPath(path, ...this.spot(index))));
    }

    spot(index) {
      const unit = (this.wide - 24) / 65535; // of both axes: distances keep their proportions
      return [12 + this.x[index] * unit, 12 + this.y[index] * unit];
    }

    paint() {
      const scale = window.devicePixelRatio || 1;
      this.wide = this.canvas.clientWidth || 400;
      const high = 24 + (this.wide - 24) * this.map.height;
      this.canvas.style.aspectRatio = `${this.wide} / ${high}`;
      this.ground = document.createElement("canvas");
      this.ground.width = this.canvas.width = Math.round(this.wide * scale);
      this.ground.height = this.canvas.height = Math.round(high * scale);
      const pen = this.ground.getContext("2d");
      pen.scale(scale, scale);
      const size = Math.max(1.4, Math.min(3.2, 130 / Math.sqrt(this.x.length)));
      const kinds = (this.set.classes || ["all"]).map((_, label) => this.kind(label));
      for (const lit of this.only < 0 && !this.kept ? [true] : [false, true]) {
        pen.globalAlpha = lit ? 0.8 : 0.12;
        for (let index = 0; index < this.x.length; index++) {
          const label = this.labels ? this.labels[index] : 0;
          if (this.lit(index) !== lit) continue;
          mark(pen, kinds[label] || kinds[0], ...this.spot(index), size);
        }
      }
      this.overlay();
    }

    overlay() {
      const pen = this.canvas.getContext("2d");
      const scale = this.canvas.width / this.wide;
      pen.setTransform(1, 0, 0, 1, 0, 0);
      pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
      pen.drawImage(this.ground, 0, 0);
      pen.scale(scale, scale);
      if (this.lasso) {
        pen.strokeStyle = colour(this.canvas, "--ink");
        pen.beginPath();
        this.lasso.forEach(([x, y], place) => (place ? pen.lineTo(x, y) : pen.moveTo(x, y)));
        pen.stroke();
      }
      if (this.chosen < 0) return;
      pen.strokeStyle = colour(this.canvas, "--ink");
      pen.lineWidth = 1.5;
      const here = this.spot(this.chosen);
      if (this.pinned) {
        for (const other of this.neighbours()) {
          const there = this.spot(other);
          pen.beginPath();
          pen.moveTo(...here);
          pen.lineTo(...there);
          pen.stroke();
          pen.beginPath();
          pen.arc(...there, 5, 0, 7);
          pen.stroke();
        }
      }
      pen.lineWidth = 2.5;
      pen.beginPath();
      pen.arc(...here, 7, 0, 7);
      pen.stroke();
    }

    neighbours() {
      return this.near.subarray(this.chosen * this.map.each, (this.chosen + 1) * this.map.each);
    }

    nearest(event) {
      const [x, y] = this.place(event);
      let best = -1;
      let least = 18 ** 2;
      for (let index = 0; index < this.x.length; index++) {
        if (!this.lit(index)) continue;
        const [a, b] = this.spot(index);
        const far = (a - x) ** 2 + (b - y) ** 2;
        if (far < least) [best, least] = [index, far];
      }
      return best;
    }

    choose(index, pinned) {
      if (index === this.chosen && pinned === this.pinned) return;
      this.chosen = index;
      this.pinned = pinned && index >= 0;
      this.canvas.dataset.chosen = String(index);
      this.overlay();
      this.tell();
    }

    label(index) {
      return this.labels ? this.set.classes[this.labels[index]] : "";
    }

    // A link to the image file where the page knows the way to it; else what it would hold.
    original(index, content) {
      if (!this.set.originals) return content;
      const link = make("a", "original");
      link.href = `${this.set.originals}/${this.set.names[index].split("/").map(encodeURIComponent).join("/")}`;
      link.target = "_blank";
      link.rel = "noopener";
      link.append(content);
      return link;
    }

    thumbnail(index, name) {
      const [wide, high] = this.set.tile;
      // The sheet may have been shrunk to fit the page.
      const shrunk = this.sprite.naturalWidth / (this.set.columns * wide) || 1;
      const picture = make("canvas");
      [picture.width, picture.height] = [wide, high];
      const [row, column] = [Math.floor(index / this.set.columns), index % this.set.columns];
      picture
        .getContext("2d")
        .drawImage(this.sprite, column * wide * shrunk, row * high * shrunk, wide * shrunk, high * shrunk, 0, 0, wide, high);
      picture.setAttribute("role", "img");
      picture.setAttribute("aria-label", this.set.names[index]);
      picture.title = this.set.names[index];
      const figure = make("figure", name);
      figure.append(this.original(index, picture), make("figcaption", "", this.label(index)));
      return figure;
    }

    tell() {
      this.looked.textContent = "";
      if (this.chosen < 0 && this.kept) {
        const all = [...this.kept];
        for (const index of all.slice(0, 12)) this.looked.append(this.thumbnail(index, "neighbour"));
        this.looked.append(make("pre", "", all.map((index) => this.set.names[index]).join("\n")));
        return;
      }
      if (this.chosen < 0) {
        const hint = "Point at an image to see it; click for its nearest neighbours; drag around images to list them.";
        this.looked.append(make("p", "quiet", hint));
        return;
      }
      this.looked.append(this.thumbnail(this.chosen, "main"));
      const named = make("p", "words-of");
      named.append(this.original(this.chosen, make("span", "", this.set.names[this.chosen])));
      this.looked.append(named);
      if (!this.pinned) return;
      const others = [...this.neighbours()];
      for (const other of others) this.looked.append(this.thumbnail(other, "neighbour"));
      if (!this.labels) return;
      const same = others.filter((other) => this.labels[other] === this.labels[this.chosen]).length;
      this.looked.append(make("p", "words-of", `${same} of its ${others.length} nearest neighbours are of its class.`));
    }

    place(event) {
      const frame = this.canvas.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    }

    listen() {
      this.canvas.addEventListener("pointerdown", (event) => {
        if (event.pointerType === "mouse" && event.button === 0) this.start = this.place(event);
      });
      this.canvas.addEventListener("pointerup", () => {
        this.start = null;
        if (!this.lasso) return;
        const found = this.encircled();
        this.lasso = null;
        this.dragged = true; // the click that follows is the end of the lasso
        this.keep(found.size ? found : null);
      });
      this.canvas.addEventListener("pointermove", (event) => {
        if (this.start) {
          const here = this.place(event);
          if (this.lasso) this.lasso.push(here);
          else if (Math.hypot(here[0] - this.start[0], here[1] - this.start[1]) > 6) this.lasso = [this.start, here];
          if (this.lasso) return this.overlay();
        }
        if (!this.pinned) this.choose(this.nearest(event), false);
      });
      this.canvas.addEventListener("pointerleave", () => {
        if (!this.pinned) this.choose(-1, false);
      });
      this.canvas.addEventListener("click", (event) => {
        if (!this.dragged) this.choose(this.nearest(event), true);
        this.dragged = false;
      });
      this.canvas.addEventListener("keydown", (event) => {
        const turn = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (turn) this.choose((this.chosen + turn + this.x.length) % this.x.length, false);
        else if (event.key === "Enter" && this.chosen >= 0) this.choose(this.chosen, true);
        else if (event.key === "Escape") this.keep(null);
        else return;
        event.preventDefault();
      });
    }
  }

  let scatters = [];
  function touchMaps(root) {
    const data = root.querySelector("#map-data");
    if (!data) return;
    const { sets, maps } = JSON.parse(data.textContent);
    const sprites = sets.map((set) => {
      const sprite = new Image();
      sprite.src = set.sprite;
      return sprite;
    });
    scatters = [...root.querySelectorAll("canvas[data-map]")].map((canvas) => {
      const map = maps[canvas.dataset.map];
      return new Scatter(canvas, map, sets[map.set], sprites[map.set]);
    });
  }
  const repaint = () => scatters.forEach((scatter) => scatter.paint());
  const anew = () =>
    scatters.forEach((scatter) => {
      scatter.legend(scatter.canvas.parentElement.querySelector(".classes"));
      scatter.paint();
    });
  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(repaint, 120);
  });
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", anew);

  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));

  function enliven(root) {
    root.querySelectorAll("svg.chart[data-x]").forEach(touchChart);
    touchMaps(root);
  }

  // A live page: ask whether something changed, and replace only the sections that did. ----------------------------
  const written = new Map([...document.querySelectorAll("section[id]")].map((part) => [part.id, part.outerHTML]));
  enliven(document);

  async function follow(address) {
    let seen = null;
    for (;;) {
      try {
        const state = await (await fetch(address, { cache: "no-store" })).text();
        if (seen !== null && state !== seen) await renew();
        seen = state;
        document.body.removeAttribute("data-lost");
      } catch {
        document.body.setAttribute("data-lost", "");
      }
      await new Promise((done) => setTimeout(done, 2000));
    }
  }

  async function renew() {
    const text = await (await fetch(location.href, { cache: "no-store" })).text();
    const fresh = new DOMParser().parseFromString(text, "text/html");
    for (const part of fresh.querySelectorAll("section[id]")) {
      const here = document.getElementById(part.id);
      if (!here || written.get(part.id) === part.outerHTML) continue;
      written.set(part.id, part.outerHTML);
      const ticked = new Set([...here.querySelectorAll("input:checked")].map((each) => each.value));
      const opened = [...here.querySelectorAll("details")].map((each) => each.open);
      const now = document.adoptNode(part);
      now.querySelectorAll("details").forEach((each, place) => (each.open = opened[place] ?? each.open));
      now.querySelectorAll("input").forEach((each) => (each.checked = ticked.has(each.value)));
      now.style.minHeight = `${here.offsetHeight}px`; // so that nothing below jumps
      here.replaceWith(now);
      enliven(now);
      now.querySelectorAll("input").forEach((each) => (each.checked = ticked.has(each.value)));
      now.style.minHeight = "";
    }
  }

  if (document.body.dataset.live) follow(document.body.dataset.live);
})();
