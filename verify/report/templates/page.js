"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const findings = all(".finding");
  const form = document.querySelector(".filter");
  const initial = new Map(all("details").map((each) => [each, each.open]));
  const words = new Map(findings.map((each) => [each, wordsOf(each)]));

  function wordsOf(finding) {
    const kernel = finding.closest(".kernel").querySelector("h3").textContent;
    const group = finding.closest(".group").querySelector("h4").textContent;
    return `${kernel} ${group} ${finding.textContent}`.toLowerCase();
  }

  function filter() {
    const sought = form.querySelector("[type=search]").value.toLowerCase().split(/\s+/);
    const boxes = all("[type=checkbox]", form);
    const allowed = new Set(boxes.filter((each) => each.checked).map((each) => each.value));
    const filtered = sought.join("") !== "" || allowed.size < boxes.length;
    const keep = (each) =>
      allowed.has(each.dataset.verdict) && sought.every((word) => words.get(each).includes(word));
    for (const each of findings) each.hidden = !keep(each);
    for (const each of all(".quiet, .group, section.kernel")) {
      const some = all(".finding", each).some((finding) => !finding.hidden);
      each.hidden = filtered && !some;
    }
    for (const each of all(".quiet")) each.open = filtered || initial.get(each);
    const shown = findings.filter((each) => !each.hidden).length;
    form.querySelector("output").value = filtered ? `${shown} of ${findings.length} findings` : "";
  }

  function offerCopy(pre) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", () => copy(pre, button));
    pre.before(button);
  }

  async function copy(pre, button) {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(pre);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  all(".repro pre").forEach(offerCopy);
  addEventListener("beforeprint", () => {
    for (const each of all(".finding[open] .repro")) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of all(".repro")) each.open = initial.get(each);
  });
})();
