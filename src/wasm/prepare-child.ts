// The program of the disposable child that prepares one component and ends.
import { registerHooks } from 'node:module'
import { AppError, messageOf } from '#lib/error.ts'
import { systemClock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'
import { parseJson, receive, send, sendJson } from '#wasm/child/pipe.ts'
import { type PrepareRequest, type PrepareResult, UP } from '#wasm/child/frames.ts'
import { createGuest } from '#wasm/guest/guest.ts'
import { PURE_CALLS } from '#wasm/lean-glue.ts'
import { type Generate, type Minify, prepareArtifact, type Tools } from '#wasm/preparing.ts'
import { camel, wasiHost } from '#wasm/guest/wasi-0-2.ts'

const SHIM = '@bytecodealliance/preview2-shim/'

/** Our WASI host as the modules that the generator imports from its own shim, which needs threads and files. */
function serveOwnHost(): void {
  const guest = createGuest(
    { args: [], env: [], stdin: new Uint8Array(0), stdinWhole: true, stdoutWhole: false },
    { clock: systemClock, random: systemRandom, pull: () => new Uint8Array(0), emit: () => {} },
  )
  const host = wasiHost(guest)
  Reflect.set(globalThis, 'clutchHost', host)
  registerHooks({
    resolve: (specifier, context, next) =>
      specifier.startsWith(SHIM)
        ? {
            url: `clutch-shim:${specifier.slice(SHIM.length)}`,
            format: 'module',
            shortCircuit: true,
          }
        : next(specifier, context),
    load: (url, context, next) =>
      url.startsWith('clutch-shim:')
        ? {
            format: 'module',
            source: shimOf(url.slice('clutch-shim:'.length), host),
            shortCircuit: true,
          }
        : next(url, context),
  })
}

/** `export const terminalInput = …` for each interface of a package: 'cli', 'io', 'random', 'filesystem'. */
function shimOf(packageName: string, host: Record<string, unknown>): string {
  return Object.keys(host)
    .filter((name) => name.startsWith(`wasi:${packageName}/`))
    .map((name) => {
      const short = camel(name.slice(name.indexOf('/') + 1))
      return `export const ${short} = globalThis.clutchHost[${JSON.stringify(name)}];`
    })
    .join('\n')
}

async function loadTools(request: PrepareRequest): Promise<Tools> {
  serveOwnHost()
  const generator = (await import(request.generatorUrl)) as {
    $init: Promise<void>
    generate: Generate
  }
  await generator.$init
  const minifier = (await import(request.minifierUrl)) as {
    minify(
      file: string,
      source: string,
      options: object,
    ): Promise<{ code: string; errors: unknown[] }>
  }
  const minify: Minify = async (source) => {
    const options = {
      module: true,
      mangle: { toplevel: false, keepNames: true },
      compress: { treeshake: { manualPureFunctions: PURE_CALLS } },
    }
    const { code, errors } = await minifier.minify('glue.js', source, options)
    if (errors.length > 0) throw new Error(`the glue does not parse: ${JSON.stringify(errors[0])}`)
    return code
  }
  return { generate: generator.generate, minify }
}

export async function main(): Promise<void> {
  const request = parseJson(receive().payload) as PrepareRequest
  const component = receive().payload
  try {
    const { kind, artifact } = await prepareArtifact(component, request.memMb, () =>
      loadTools(request),
    )
    sendJson(UP.prepared, { ok: true, kind } satisfies PrepareResult)
    send(UP.bytes, artifact)
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    const { reason = error.code, next } = error.details
    const message = next === undefined ? messageOf(error) : `${messageOf(error)}; ${next}`
    sendJson(UP.prepared, { ok: false, reason, message } satisfies PrepareResult)
  }
}
