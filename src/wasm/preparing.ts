// The steps from a component to an artifact. Runs in the disposable child only: it feeds foreign bytes to foreign tools.
// 1. Names and imports are checked by our own reader before the generator sees the bytes.
// 2. The core modules that the generator emits are checked again before its glue goes anywhere.
// 3. The glue is never evaluated here.
import { messageOf } from '#lib/error.ts'
import { checkMagic } from '#wasm/check.ts'
import { type Artifact, encodeArtifact } from '#wasm/artifact.ts'
import { refuse } from '#wasm/binary/cursor.ts'
import { allocateEmptyStrings } from '#wasm/empty-strings.ts'
import { readComponent } from '#wasm/binary/component.ts'
import { readCoreModule } from '#wasm/binary/core-module.ts'
import { checkMinimum } from '#wasm/binary/size-at-start.ts'
import { checkPreview1, checkWorld } from '#wasm/offered.ts'
import { leanGlue } from '#wasm/lean-glue.ts'
import { printable } from '#wasm/binary/safe-name.ts'
import { meterModule } from '#wasm/meter/meter.ts'

/** The part of jco's bindgen that we call. */
export type Generate = (
  component: Uint8Array,
  options: {
    name: string
    map: [string, string][]
    instantiation: { tag: 'sync' }
    noTypescript: boolean
    noNodejsCompat: boolean
    noComponentErrorWrapping: boolean
    base64Cutoff: number
  },
) => { files: [string, Uint8Array][]; imports: string[] }

export type Minify = (source: string) => Promise<string>

export type Tools = { generate: Generate; minify: Minify }

const GLUE_START = '"use components";export function instantiate('
const GLUE_END = 'export const _util={};'

/** The minified module as a script whose value is its `instantiate`. Throws when the generator's form changed. */
function scriptOf(minified: string): string {
  const text = minified.trim()
  if (!text.startsWith(GLUE_START) || !text.endsWith(GLUE_END))
    throw new Error('the generator emits a form that this version does not know')
  const body = text.slice(GLUE_START.length, -GLUE_END.length)
  return `"use strict";(function(){function instantiate(${body};return instantiate})()`
}

function checkModule(bytes: Uint8Array, memMb: number): Uint8Array {
  const module = readCoreModule(bytes)
  checkMinimum(module.memories, memMb)
  checkValid(bytes)
  return meterModule(bytes, { canonicalNaNs: false })
}

/** V8 decides what is valid; its message names the byte. */
function checkValid(bytes: Uint8Array): void {
  try {
    void new WebAssembly.Module(new Uint8Array(bytes))
  } catch (error) {
    throw refuse('MALFORMED', `the module is not valid: ${printable(messageOf(error), 400)}`)
  }
}

/** The generator's own refusals carry their text as `payload`. */
function generatorMessage(error: unknown): string {
  const payload: unknown =
    typeof error === 'object' && error !== null && 'payload' in error ? error.payload : undefined
  const text = typeof payload === 'string' ? payload : error instanceof Error ? error.message : ''
  return printable(text.replaceAll(/\s+/g, ' '), 400)
}

function generateFrom(bytes: Uint8Array, generate: Generate): ReturnType<Generate> {
  try {
    return generate(bytes, {
      name: 'guest',
      map: [],
      instantiation: { tag: 'sync' },
      noTypescript: true,
      noNodejsCompat: true,
      noComponentErrorWrapping: true,
      base64Cutoff: 0,
    })
  } catch (error) {
    throw refuse(
      'MALFORMED',
      `the component is malformed: ${generatorMessage(error)}`,
      'check it with `wasm-tools validate`',
    )
  }
}

async function componentArtifact(
  bytes: Uint8Array,
  memMb: number,
  loadTools: () => Promise<Tools>,
): Promise<Artifact> {
  const component = readComponent(bytes)
  checkWorld(component)
  for (const { memories } of component.modules) checkMinimum(memories, memMb)
  const { generate, minify } = await loadTools()
  const { files, imports } = generateFrom(bytes, generate)
  const modules = files
    .filter(([file]) => file.endsWith('.wasm'))
    .map(([file, module]) => ({ name: file, bytes: checkModule(module, memMb) }))
  const source = files.find(([file]) => file.endsWith('.js'))?.[1]
  if (source === undefined) throw new Error('the generator emitted no JavaScript')
  const glue = scriptOf(
    await minify(leanGlue(allocateEmptyStrings(new TextDecoder().decode(source)))),
  )
  const names = [...new Set([...component.imports.map(({ name }) => name), ...imports])]
  return { kind: 'component', imports: names, glue, modules }
}

function preview1Artifact(bytes: Uint8Array, memMb: number): Artifact {
  checkPreview1(readCoreModule(bytes))
  const main = checkModule(bytes, memMb)
  return { kind: 'preview1', imports: [], glue: '', modules: [{ name: 'main', bytes: main }] }
}

/** `loadTools` is called when our own checks have passed. Refuses INVALID with a reason; any other error is this program's own. */
export async function prepareArtifact(
  bytes: Uint8Array,
  memMb: number,
  loadTools: () => Promise<Tools>,
): Promise<{ kind: Artifact['kind']; artifact: Uint8Array }> {
  const artifact =
    checkMagic(bytes) === 'component'
      ? await componentArtifact(bytes, memMb, loadTools)
      : preview1Artifact(bytes, memMb)
  return { kind: artifact.kind, artifact: encodeArtifact(artifact) }
}
