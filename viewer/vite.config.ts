import {resolve} from 'node:path';

import {defineConfig} from 'vitest/config';

export default defineConfig({
  base: './',
  esbuild: {jsx: 'automatic', jsxImportSource: 'preact'},
  build: {
    outDir: '../bags/viewer/static',
    emptyOutDir: true,
    target: 'es2022',
    rollupOptions: {
      input: {index: resolve(__dirname, 'index.html'), worker: resolve(__dirname, 'src/worker.ts')},
      output: {entryFileNames: chunk => chunk.name === 'worker' ? 'worker.js' : 'assets/[name]-[hash].js'},
    },
  },
  test: {include: ['tests/**/*.test.ts'], globalSetup: 'tests/setup.ts', testTimeout: 60_000, hookTimeout: 60_000, fileParallelism: false},
});
