// Runs the extension: node vscode_stand_in.js EXTENSION PYTHON FILE
const [extension, python, file] = process.argv.slice(2);
const text = require("fs").readFileSync(file, "utf8");
const document = { languageId: "egg", uri: `file://${file}`, version: 1, getText: () => text };
const providers = {};
const nothing = { dispose() {} };
let published;
const diagnostics = new Promise((resolve) => (published = resolve));
class Made {
  constructor(...values) {
    this.values = values;
  }
}
const stand_in = {
  Range: Made, Diagnostic: Made, Hover: Made, MarkdownString: Made, Location: Made,
  Uri: { parse: (text) => text },
  workspace: {
    textDocuments: [document],
    getConfiguration: () => ({ get: () => python }),
    onDidOpenTextDocument: () => nothing,
    onDidChangeTextDocument: () => nothing,
    onDidCloseTextDocument: () => nothing,
  },
  window: {
    createOutputChannel: () => ({ append() {}, appendLine() {}, ...nothing }),
    showErrorMessage: console.error,
  },
  languages: {
    createDiagnosticCollection: () => ({ set: (uri, found) => published(found), ...nothing }),
    registerHoverProvider: (_, provider) => Object.assign(providers, provider),
    registerDefinitionProvider: (_, provider) => Object.assign(providers, provider),
  },
};
const Module = require("module");
const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? stand_in : load(name, ...rest));
const client = require(extension);

(async () => {
  await client.activate({ subscriptions: [] });
  const at = { line: 1, character: text.split("\n")[1].indexOf("axioms") };
  const [found] = await diagnostics;
  const hover = await providers.provideHover(document, at);
  const definition = await providers.provideDefinition(document, at);
  console.log(
    JSON.stringify({
      diagnostic: found.values[1],
      hover: hover.values[0].values[0],
      definition: definition.values[0],
    }),
  );
  await client.deactivate();
})();
