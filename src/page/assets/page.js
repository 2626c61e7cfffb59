// Behaviour of every page: sortable tables, CSV of tables, SVG and PNG of figures, copy buttons, choices kept over a reload.
var Page = (function () {
  "use strict";
  var name = document.title.replace(/[^\p{L}\p{N}]+/gu, "_").replace(/^_|_$/g, "").slice(0, 60) || "page";

  // Kept for the tab, so that a page that reloads itself stays as its reader left it.
  function kept(id) {
    try { return JSON.parse(sessionStorage.getItem(location.pathname + "#" + id)); } catch (error) { return null; }
  }
  function keep(id, value) {
    try { sessionStorage.setItem(location.pathname + "#" + id, JSON.stringify(value)); } catch (error) { /* no storage here */ }
  }

  function download(file, content, type) {
    var link = document.createElement("a");
    link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: type }));
    link.download = file;
    document.body.appendChild(link);
    link.click();
    link.remove();
    setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
  }

  function button(label, about, act) {
    var node = document.createElement("button");
    node.type = "button";
    node.textContent = label;
    node.setAttribute("aria-label", about);
    node.addEventListener("click", act);
    return node;
  }

  function element(tag, kind, text) {
    var node = document.createElement(tag);
    if (kind) node.className = kind;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // A list with its label. options: {label, value}; choose gets the value.
  function list(label, options, chosen, choose) {
    var box = element("label"), select = element("select");
    box.appendChild(document.createTextNode(label + " "));
    options.forEach(function (option) {
      var item = element("option", "", option.label);
      item.selected = option.value === chosen;
      select.appendChild(item);
    });
    select.addEventListener("change", function () { choose(options[select.selectedIndex].value); });
    box.appendChild(select);
    return box;
  }

  // The numbers of float16 in base64.
  function halves(text) {
    var bytes = Uint8Array.from(atob(text), function (c) { return c.charCodeAt(0); }), out = new Float32Array(bytes.length / 2);
    for (var i = 0; i < out.length; ++i) {
      var bits = bytes[2 * i] | bytes[2 * i + 1] << 8, sign = bits & 0x8000 ? -1 : 1, power = bits >> 10 & 31, part = bits & 1023;
      out[i] = power === 0 ? sign * part * Math.pow(2, -24) : power === 31 ? NaN : sign * (1 + part / 1024) * Math.pow(2, power - 15);
    }
    return out;
  }

  function file(title, ending) {
    var part = (title || "").replace(/[^\p{L}\p{N}]+/gu, "_").replace(/^_|_$/g, "").slice(0, 60);
    return name + (part ? "-" + part : "") + "." + ending;
  }

  function csv(rows) {
    return rows.map(function (row) {
      return row.map(function (cell) { return /[",\n\r]/.test(cell) ? '"' + cell.replace(/"/g, '""') + '"' : cell; }).join(",");
    }).join("\r\n") + "\r\n";
  }

  // Rasterises a drawing at two dots a pixel.
  function png(svg, title) {
    var image = new Image();
    image.onload = function () {
      var canvas = document.createElement("canvas"), scale = Math.min(2, 8192 / Math.max(image.width, image.height, 1));
      canvas.width = Math.max(1, Math.round(image.width * scale));
      canvas.height = Math.max(1, Math.round(image.height * scale));
      var context = canvas.getContext("2d");
      context.fillStyle = "#fff";
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(function (blob) { if (blob) download(file(title, "png"), blob); });
    };
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg);
  }

  // Buttons for what `sources` gives: svg() a drawing, csv() rows of cells, png() a canvas.
  function tools(parent, title, sources) {
    var bar = document.createElement("div");
    bar.className = "tools noprint";
    var about = title ? " of " + title : "";
    if (sources.svg) {
      bar.appendChild(button("SVG", "Download SVG" + about, function () { download(file(title, "svg"), sources.svg(), "image/svg+xml"); }));
      bar.appendChild(button("PNG", "Download PNG" + about, function () { png(sources.svg(), title); }));
    }
    if (sources.png) bar.appendChild(button("PNG", "Download PNG" + about, function () {
      sources.png().toBlob(function (blob) { if (blob) download(file(title, "png"), blob); });
    }));
    if (sources.csv) bar.appendChild(button("CSV", "Download CSV" + about, function () { download(file(title, "csv"), csv(sources.csv()), "text/csv"); }));
    parent.appendChild(bar);
    return bar;
  }

  // A drawing with the colours of the page written into it, in the light scheme's place where it is dark.
  function standalone(svg) {
    var copy = svg.cloneNode(true), from = [svg].concat(Array.from(svg.querySelectorAll("*"))), to = [copy].concat(Array.from(copy.querySelectorAll("*")));
    from.forEach(function (node, i) {
      if (!node.getAttribute("class") && node !== svg) return;
      var style = getComputedStyle(node);
      ["fill", "stroke"].forEach(function (key) { if (style[key]) to[i].setAttribute(key, style[key]); });
    });
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("font-family", "sans-serif");
    var back = document.createElementNS("http://www.w3.org/2000/svg", "rect"), box = svg.viewBox.baseVal;
    back.setAttribute("x", box ? box.x : 0);
    back.setAttribute("y", box ? box.y : 0);
    back.setAttribute("width", "100%");
    back.setAttribute("height", "100%");
    back.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
    copy.insertBefore(back, copy.firstChild);
    return new XMLSerializer().serializeToString(copy);
  }

  function heading(node) {
    for (var at = node; at && at !== document.body; at = at.parentElement) {
      for (var before = at.previousElementSibling; before; before = before.previousElementSibling) {
        if (/^(H[2-5]|SUMMARY)$/.test(before.tagName)) return before.textContent;
      }
    }
    return "";
  }

  document.querySelectorAll(".figure").forEach(function (figure) {
    var svg = figure.querySelector("svg"), image = figure.querySelector("img.picture");
    var title = figure.dataset.name;
    if (svg) tools(figure, title, { svg: function () { return standalone(svg); } });
    else if (image) tools(figure, title, { svg: function () { return decodeURIComponent(image.src.slice(image.src.indexOf(",") + 1)); } });
  });

  // "1,234 ± 5 %" as 1234; what has no number comes last.
  function value(cell) {
    var found = cell.replace(/,(?=\d{3})/g, "").replace(/\u2212/g, "-").match(/^[^\d-]{0,2}(-?\d+(\.\d+)?(e[+-]?\d+)?)/i);
    return found ? parseFloat(found[1]) : NaN;
  }

  document.querySelectorAll("table").forEach(function (table) {
    var head = table.tHead && table.tHead.rows[0], body = table.tBodies[0];
    if (!head || !body) return;
    var title = heading(table);
    if (!table.caption) {
      var caption = table.createCaption();
      caption.className = "hidden-text";
      caption.textContent = title || name;
    }
    if (body.rows.length > 1) Array.from(head.cells).forEach(function (cell, column) {
      cell.scope = "col";
      var sorter = document.createElement("button");
      sorter.type = "button";
      while (cell.firstChild) sorter.appendChild(cell.firstChild);
      cell.appendChild(sorter);
      cell.setAttribute("aria-sort", "none");
      sorter.addEventListener("click", function () {
        var up = cell.getAttribute("aria-sort") !== "ascending";
        Array.from(head.cells).forEach(function (other) { other.setAttribute("aria-sort", "none"); });
        cell.setAttribute("aria-sort", up ? "ascending" : "descending");
        var rows = Array.from(body.rows), texts = rows.map(function (row) { return row.cells[column] ? row.cells[column].textContent.trim() : ""; });
        var numeric = texts.filter(function (t) { return t && !isNaN(value(t)); }).length * 2 > texts.filter(Boolean).length;
        rows.map(function (row, i) { return { row: row, text: texts[i], value: value(texts[i]) }; }).sort(function (a, b) {
          if (numeric) {
            if (isNaN(a.value) || isNaN(b.value)) return isNaN(a.value) - isNaN(b.value);
            return up ? a.value - b.value : b.value - a.value;
          }
          return a.text.localeCompare(b.text, "en", { numeric: true }) * (up ? 1 : -1);
        }).forEach(function (entry) { body.appendChild(entry.row); });
      });
    });
    var place = table.closest(".scroll") || table;
    if (body.rows.length > 0) place.after(tools(document.createElement("div"), title, {
      csv: function () { return Array.from(table.rows).map(function (row) { return Array.from(row.cells).map(function (cell) { return cell.textContent.trim(); }); }); }
    }));
  });

  function copy(text, node) {
    function done() {
      node.textContent = "copied";
      setTimeout(function () { node.textContent = "copy"; }, 1500);
    }
    function old() {  // where a page opened from a file has no clipboard
      var area = document.createElement("textarea");
      area.value = text;
      document.body.appendChild(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      done();
    }
    if (navigator.clipboard && window.isSecureContext) navigator.clipboard.writeText(text).then(done, old);
    else old();
  }
  document.querySelectorAll("pre[data-copy]").forEach(function (pre) {
    var box = document.createElement("div"), node = document.createElement("button");
    box.className = "copied";
    pre.replaceWith(box);
    box.appendChild(pre);
    node.type = "button";
    node.className = "copy noprint";
    node.textContent = "copy";
    node.setAttribute("aria-live", "polite");
    node.addEventListener("click", function () { copy(pre.textContent, node); });
    box.appendChild(node);
  });

  // Makes boxes that scroll sideways reachable with the keyboard.
  document.querySelectorAll(".scroll").forEach(function (box) {
    function mark() {
      if (box.scrollWidth > box.clientWidth + 1) {
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        box.setAttribute("aria-label", heading(box) || "scrolls sideways");
      }
    }
    mark();
    window.addEventListener("resize", mark);
  });

  document.querySelectorAll("details").forEach(function (details, i) {
    var before = kept("details-" + i);
    if (before !== null) details.open = before;
    details.addEventListener("toggle", function () { keep("details-" + i, details.open); });
  });

  return { element: element, list: list, halves: halves, kept: kept, keep: keep, tools: tools, button: button };
})();
