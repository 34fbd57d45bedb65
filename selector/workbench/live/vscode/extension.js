// A client of `python -m selector rules lsp`, without packages beside Visual Studio Code's own.
"use strict";
const { spawn } = require("child_process");
const vscode = require("vscode");

/** Messages to and from the server: JSON behind a header that says how many bytes it has. */
class Connection {
  constructor(process, notified) {
    this.process = process;
    this.notified = notified;
    this.waiting = new Map();
    this.number = 0;
    this.received = Buffer.alloc(0);
    process.stdout.on("data", (bytes) => this.receive(bytes));
    process.stdin.on("error", () => undefined); // it has ended; `close` says so
    process.on("close", () => this.waiting.forEach((resolve) => resolve(null)));
  }

  write(message) {
    const body = Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message }));
    this.process.stdin.write(`Content-Length: ${body.length}\r\n\r\n`);
    this.process.stdin.write(body);
  }

  tell(method, params) {
    this.write({ method, params });
  }

  ask(method, params) {
    const id = ++this.number;
    this.write({ id, method, params });
    return new Promise((resolve) => this.waiting.set(id, resolve));
  }

  receive(bytes) {
    this.received = Buffer.concat([this.received, bytes]);
    for (;;) {
      const end = this.received.indexOf("\r\n\r\n");
      if (end < 0) return;
      const length = Number(/Content-Length: (\d+)/i.exec(this.received.toString("ascii", 0, end))[1]);
      if (this.received.length < end + 4 + length) return;
      const message = JSON.parse(this.received.toString("utf8", end + 4, end + 4 + length));
      this.received = this.received.subarray(end + 4 + length);
      if (message.method) this.notified(message.method, message.params);
      else if (this.waiting.has(message.id)) {
        this.waiting.get(message.id)(message.result ?? null);
        this.waiting.delete(message.id);
      }
    }
  }
}

const range = ({ start, end }) =>
  new vscode.Range(start.line, start.character, end.line, end.character);

let server;

async function activate(context) {
  const python = vscode.workspace.getConfiguration("tensorSelector").get("python");
  const log = vscode.window.createOutputChannel("tensor-selector rules");
  const problems = vscode.languages.createDiagnosticCollection("rules");
  const child = spawn(python, ["-m", "selector", "rules", "lsp", "--stdio"]);
  child.on("error", (error) => vscode.window.showErrorMessage(`${python}: ${error.message}`));
  child.stderr.on("data", (text) => log.append(String(text)));
  server = new Connection(child, (method, params) => {
    if (method === "window/logMessage") log.appendLine(params.message);
    if (method !== "textDocument/publishDiagnostics") return;
    const found = params.diagnostics.map((d) => {
      const made = new vscode.Diagnostic(range(d.range), d.message, d.severity - 1);
      return Object.assign(made, { source: d.source, code: d.code });
    });
    problems.set(vscode.Uri.parse(params.uri), found);
  });
  await server.ask("initialize", { processId: process.pid, rootUri: null, capabilities: {} });
  server.tell("initialized", {});

  const named = (document) => ({ uri: String(document.uri), version: document.version });
  const place = (document, at) => ({
    textDocument: { uri: String(document.uri) },
    position: { line: at.line, character: at.character },
  });
  const ours = (document, then) => document.languageId === "egg" && then();
  const open = (document) =>
    ours(document, () =>
      server.tell("textDocument/didOpen", {
        textDocument: { ...named(document), languageId: "egg", text: document.getText() },
      }));
  const change = ({ document }) =>
    ours(document, () =>
      server.tell("textDocument/didChange", {
        textDocument: named(document),
        contentChanges: [{ text: document.getText() }],
      }));
  const close = (document) =>
    ours(document, () =>
      server.tell("textDocument/didClose", { textDocument: { uri: String(document.uri) } }));
  const hover = async (document, at) => {
    const found = await server.ask("textDocument/hover", place(document, at));
    return found && new vscode.Hover(new vscode.MarkdownString(found.contents.value));
  };
  const definition = async (document, at) => {
    const found = await server.ask("textDocument/definition", place(document, at));
    return found && new vscode.Location(vscode.Uri.parse(found.uri), range(found.range));
  };
  vscode.workspace.textDocuments.forEach(open);
  context.subscriptions.push(
    log,
    problems,
    vscode.workspace.onDidOpenTextDocument(open),
    vscode.workspace.onDidChangeTextDocument(change),
    vscode.workspace.onDidCloseTextDocument(close),
    vscode.languages.registerHoverProvider("egg", { provideHover: hover }),
    vscode.languages.registerDefinitionProvider("egg", { provideDefinition: definition }),
  );
}

async function deactivate() {
  if (!server) return;
  await server.ask("shutdown");
  server.tell("exit");
}

module.exports = { activate, deactivate };
