// What all parts of the page share: the session, which a link restores, and what is shown of it.

import { fresh, question, version } from "./session.js";

export const nothing = () => ({ report: null, text: "", numbers: [], missed: new Set(), error: -1, updates: [] });

// The answers about a program: each is null (not there yet), data, or a `Refused`.
export const unanswered = () => ({ reasons: null, code: null, machine: null });

export const state = {
  session: fresh(),
  shown: nothing(),
  answers: unanswered(),
  known: new Map(), // rules by name
  kernel: "", // the artifact of the code that is shown
  tensorLines: {}, // how many, by tab
  jump: false, // a new program: show its chosen statement in every pane
};

export const text = () => state.session[state.session.kind];

// What is asked of the service, whichever answer is wanted.
export const request = () => question(version(state.session), state.session.target);

// The statement of the report that was chosen; undefined if there is none.
export const chosen = () => state.shown.report?.statements[state.session.statement - 1];

// Whether a line's entry, a number or several with blanks, names a statement.
export const names = (entry, number) => String(entry ?? "").split(" ").includes(String(number));
