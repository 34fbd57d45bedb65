// Short links: the service stores what is on the page under a name, and `p/NAME` opens it.

import { complain } from "./asking.js";
import { $ } from "./panes.js";
import { say } from "./results.js";
import { get, put, Refused, ROOT } from "./service.js";
import { fromLink, toLink } from "./session.js";
import { state } from "./state.js";

// The name of a link in the address; empty if there is none.
export const linked = () => /\/p\/([\w-]+)$/.exec(location.pathname)?.[1] ?? "";

// What is on the page is no longer what the address says.
export function leaveLink() {
  if (linked()) history.replaceState(null, "", ROOT);
}

export async function openLink(name) {
  return fromLink(await get(`links/${name}`));
}

async function copy() {
  try {
    await navigator.clipboard.writeText($("address").value);
    say("good", "link copied");
  } catch {
    $("address").select();
    say("", "copy the link from its field");
  }
}

export async function share() {
  if (!state.session[state.session.kind].trim()) {
    say("", "there is no program to share");
    return;
  }
  try {
    const { id } = await put("links", toLink(state.session));
    const address = new URL(`p/${id}`, ROOT).href;
    history.replaceState(null, "", address);
    $("address").value = address;
    $("shared").showModal();
    $("address").select();
    await copy();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    complain(error, share);
  }
}

export function listenToSharing() {
  $("share").addEventListener("click", share);
  $("copy").addEventListener("click", copy);
}
