// The word count as a Worker: the same module, compiled once, a fresh instance a request, as much of WASI preview 1 as it
// imports. JSON in, JSON out.
import words from './words.wasm'

class Exit extends Error {
  constructor(code) {
    super(`exit ${code}`)
    this.code = code
  }
}

function run(stdin) {
  let memory
  let at = 0
  const out = []
  const view = () => new DataView(memory.buffer)
  const pieces = (list, count) =>
    Array.from({ length: count }, (_, i) => {
      const [from, size] = [
        view().getUint32(list + 8 * i, true),
        view().getUint32(list + 8 * i + 4, true),
      ]
      return new Uint8Array(memory.buffer, from, size)
    })
  const wasi = {
    args_sizes_get(count, bytes) {
      view().setUint32(count, 1, true)
      view().setUint32(bytes, 2, true)
      return 0
    },
    args_get(list, text) {
      view().setUint32(list, text, true)
      new Uint8Array(memory.buffer).set([0x77, 0], text)
      return 0
    },
    fd_read(_fd, list, count, got) {
      const began = at
      for (const piece of pieces(list, count)) {
        const part = stdin.subarray(at, at + piece.length)
        piece.set(part)
        at += part.length
      }
      view().setUint32(got, at - began, true)
      return 0
    },
    fd_write(fd, list, count, wrote) {
      let size = 0
      for (const piece of pieces(list, count)) {
        if (fd === 1) out.push(piece.slice())
        size += piece.length
      }
      view().setUint32(wrote, size, true)
      return 0
    },
    proc_exit(code) {
      throw new Exit(code)
    },
  }
  const instance = new WebAssembly.Instance(words, { wasi_snapshot_preview1: wasi })
  memory = instance.exports.memory
  let exitCode = 0
  try {
    instance.exports._start()
  } catch (error) {
    if (!(error instanceof Exit)) throw error
    exitCode = error.code
  }
  const text = new TextDecoder()
  return { ok: exitCode === 0, exitCode, stdout: out.map((one) => text.decode(one)).join('') }
}

// oxlint-disable-next-line import/no-default-export -- what workerd asks for
export default {
  async fetch(request) {
    const { stdin } = await request.json()
    return Response.json(run(new TextEncoder().encode(stdin)))
  },
}
