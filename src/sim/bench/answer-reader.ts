// Just enough of HTTP/1.1 to read what our own servers answer, at next to no cost: a status, then a body of a known
// length or in chunks. Not for what strangers send.

const HEAD_END = '\r\n\r\n'
const LINE_END = '\r\n'

export class AnswerReader {
  readonly #answered: (status: number, body: string) => void
  #held: Buffer = Buffer.alloc(0)

  /** `answered` is called once an answer. */
  constructor(answered: (status: number, body: string) => void) {
    this.#answered = answered
  }

  push(chunk: Buffer): void {
    this.#held = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk])
    const headEnd = this.#held.indexOf(HEAD_END)
    if (headEnd < 0) return
    const head = this.#held.toString('latin1', 0, headEnd)
    const from = headEnd + HEAD_END.length
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
    const body =
      length === undefined ? chunked(this.#held, from) : whole(this.#held, from, Number(length))
    if (!body) return
    this.#held = this.#held.subarray(body.end)
    this.#answered(Number(head.slice(9, 12)), body.text)
  }
}

type Body = { text: string; end: number }

/** Undefined while some of it is missing; so is `chunked`. */
function whole(bytes: Buffer, from: number, length: number): Body | undefined {
  const end = from + length
  return bytes.length < end ? undefined : { text: bytes.toString('utf8', from, end), end }
}

function chunked(bytes: Buffer, from: number): Body | undefined {
  const parts: Buffer[] = []
  for (let at = from; ;) {
    const lineEnd = bytes.indexOf(LINE_END, at)
    if (lineEnd < 0) return undefined
    const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16)
    const begin = lineEnd + LINE_END.length
    const end = begin + size + LINE_END.length
    if (bytes.length < end) return undefined
    if (size === 0) return { text: Buffer.concat(parts).toString(), end }
    parts.push(bytes.subarray(begin, begin + size))
    at = end
  }
}
