// The gallery: the case studies as cards, and the small programs of the rules' tests.

import { $, make } from "./panes.js";

const ABOUT = {
  "case studies": "The pipelines of the case studies, as Halide lowers them, in their smallest size.",
  "pipelines in Python": "Written in Halide's Python; the service lowers them.",
  "small programs": "What the rules are tried on.",
};

// The first line of a program says its target and what it is.
function summary(example) {
  const found = /^# [^:\n]*: (.*)/.exec(example.text);
  return found ? found[1] : "";
}

function card(example, open) {
  const button = make("button", { class: "card", "data-example": example.name },
    make("b", {}, example.name.replace(/\.vir$/, "").replaceAll("_", " ")), make("span", { class: "chip" }, example.target), make("span", { class: "about" }, summary(example)));
  button.addEventListener("click", () => {
    $("gallery").close();
    open(example);
  });
  return button;
}

export function fillGallery(examples, open) {
  const groups = Map.groupBy ? Map.groupBy(examples, (e) => e.group) : grouped(examples);
  $("cards").replaceChildren(...[...groups].map(([name, some]) =>
    make("section", { class: some.some(summary) ? "group" : "group small", "aria-label": name },
      make("h3", {}, name), make("p", { class: "note" }, ABOUT[name] ?? ""), make("div", { class: "cards" }, ...some.map((e) => card(e, open))))),
  make("p", { class: "empty", id: "no-example", hidden: "" }, "No example is called so."));
}

function grouped(examples) {
  const groups = new Map();
  for (const e of examples) groups.set(e.group, [...(groups.get(e.group) ?? []), e]);
  return groups;
}

export function openGallery() {
  if (!$("cards").firstChild) $("cards").replaceChildren(make("p", { class: "empty" }, "The examples have not come from the service yet."));
  $("wanted").value = "";
  filter();
  $("gallery").showModal();
}

function filter() {
  const wanted = $("wanted").value.trim().toLowerCase();
  const cards = [...$("cards").querySelectorAll(".card")];
  for (const node of cards) node.hidden = !`${node.dataset.example} ${node.textContent}`.toLowerCase().includes(wanted);
  for (const group of $("cards").querySelectorAll(".group")) group.hidden = !group.querySelector(".card:not([hidden])");
  if ($("no-example")) $("no-example").hidden = cards.some((node) => !node.hidden);
}

export function listenToGallery() {
  $("wanted").addEventListener("input", filter);
  $("wanted").addEventListener("keydown", (event) => {
    if (event.key === "Enter") $("cards").querySelector(".card:not([hidden])")?.click();
  });
  $("close-gallery").addEventListener("click", () => $("gallery").close());
}
