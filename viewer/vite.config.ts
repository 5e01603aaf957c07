import {existsSync, readFileSync} from 'node:fs';
import {resolve} from 'node:path';

import {defineConfig, type Plugin} from 'vitest/config';

import {dependencies} from './package.json';

export default defineConfig({
  base: './',
  esbuild: {jsx: 'automatic', jsxImportSource: 'preact'},
  plugins: [licenses()],
  build: {
    outDir: '../bags/viewer/static',
    emptyOutDir: true,
    target: 'es2022',
    rollupOptions: {
      input: {index: resolve(__dirname, 'index.html'), worker: resolve(__dirname, 'src/worker.ts')},
      output: {entryFileNames: chunk => chunk.name === 'worker' ? 'worker.js' : 'assets/[name]-[hash].js'},
    },
  },
  test: {include: ['tests/**/*.test.ts'], globalSetup: 'tests/setup.ts', testTimeout: 60_000, hookTimeout: 60_000, fileParallelism: false, expect: {poll: {timeout: 15_000}}},
});

/** Writes the licences of the packages that the page contains: theirs ask for it. */
function licenses(): Plugin {
  return {
    name: 'licenses',
    generateBundle() {
      const texts = Object.keys(dependencies).map(name => {
        const folder = resolve(__dirname, 'node_modules', name);
        const {version} = JSON.parse(readFileSync(`${folder}/package.json`, 'utf8'));
        const own = resolve(__dirname, 'licenses', `${name.replace('@', '').replace('/', '-')}.txt`);
        const file = [`${folder}/LICENSE`, `${folder}/LICENSE.md`, own].find(existsSync);
        if (!file) throw new Error(`${name} has no file LICENSE: write ${own}`);
        return `${name} ${version}\n\n${readFileSync(file, 'utf8').trim()}\n`;
      });
      this.emitFile({type: 'asset', fileName: 'licenses.txt', source: texts.join(`\n${'-'.repeat(80)}\n\n`)});
    },
  };
}
