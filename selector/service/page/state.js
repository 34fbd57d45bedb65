// What all parts of the page share: the session, which a link restores, and what is shown of it.

import { fresh } from "./session.js";

export const nothing = () => ({ report: null, ir: "", numbers: [], missed: new Set(), error: -1, updates: [] });

export const state = {
  session: fresh(),
  shown: nothing(),
  known: new Map(), // rules by name
  kernel: "", // the artifact of the code that is shown
  machineOf: "", // the request that the machine code shown is of
  tensorLines: {}, // how many, by tab
  jump: false, // a new program: show its chosen statement in every pane
};

// What is asked of the service, whichever answer is wanted.
export function request() {
  const { ir, target, rules, only } = state.session;
  return { ir, target, rules, instructions: only ? [only] : null };
}

// The statement of the report that was chosen; undefined if there is none.
export const chosen = () => state.shown.report?.statements[state.session.statement - 1];
