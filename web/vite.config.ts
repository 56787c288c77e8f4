import { defineConfig, type Plugin } from "vite";

// The built page runs nothing but its own files; in development Vite needs more than that.
const policy =
  "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-src 'none'";

const contentPolicy: Plugin = {
  name: "content-policy",
  apply: "build",
  transformIndexHtml: () => [
    { tag: "meta", attrs: { "http-equiv": "Content-Security-Policy", content: policy }, injectTo: "head-prepend" },
  ],
};

// `npm run dev` asks a running server for everything that is not the page's own: PENSTOCK_REST says which.
const rest = process.env["PENSTOCK_REST"] ?? "http://127.0.0.1:8081";
const paths = ["applications", "config", "jobmanager", "jobs", "overview", "savepoint-disposal", "taskmanagers"];

export default defineConfig({
  base: "./",
  plugins: [contentPolicy],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/penstock/server/page/dist",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: Object.fromEntries(paths.map((path) => [`^/${path}(/|$|\\?)`, { target: rest }])) },
});
