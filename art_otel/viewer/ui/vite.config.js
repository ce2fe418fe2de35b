// One classic script and one style sheet with fixed names: the exported page inlines both, and CI compares their bytes.
import { defineConfig } from "vite";

export default defineConfig({
  publicDir: "public",
  // The classic calls take children as arguments: 4 kB less than the property of the automatic ones.
  oxc: { jsx: { runtime: "classic", pragma: "h", pragmaFrag: "Fragment" }, jsxInject: `import { h, Fragment } from "preact"` },
  build: {
    outDir: "../static",
    emptyOutDir: true,
    modulePreload: false,
    sourcemap: false,
    target: "es2022",
    cssCodeSplit: false,
    rollupOptions: {
      input: "src/main.tsx",
      output: { format: "iife", entryFileNames: "app.js", assetFileNames: "app[extname]" },
    },
  },
});
