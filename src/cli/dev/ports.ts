// Ports of this machine: whether one can be taken, and who has it when it cannot.
import { createSocket } from 'node:dgram'
import { readdir, readFile, readlink } from 'node:fs/promises'
import { createServer } from 'node:net'
import { basename } from 'node:path'
import { AppError } from '#lib/error.ts'

const HOST = '127.0.0.1'

export type PortUse = 'tcp' | 'tcp+udp'

/** True when a program could listen on it now. */
export async function isFree(port: number, use: PortUse): Promise<boolean> {
  const tcp = await canListen(port)
  return tcp !== undefined && (use === 'tcp' || (await canBind(tcp)))
}

/** A port that is free for the use. The system picks it. */
export async function freePort(use: PortUse): Promise<number> {
  for (let tries = 0; tries < 20; tries++) {
    const port = await canListen(0)
    if (port !== undefined && (use === 'tcp' || (await canBind(port)))) return port
  }
  throw new AppError('UNAVAILABLE', 'the system gives no free port', {
    details: { reason: 'NO_PORT' },
  })
}

/** Errors: INVALID_STATE `PORT_TAKEN`, naming the program that has it where that can be seen. */
export async function requirePort(port: number, use: PortUse, flag: string): Promise<void> {
  if (await isFree(port, use)) return
  const holder = await holderOf(port)
  throw new AppError('INVALID_STATE', `port ${port} is taken${holder ? ` by ${holder}` : ''}`, {
    details: {
      reason: 'PORT_TAKEN',
      next: `Stop that program, or choose another port: ${flag} ${port + 1}`,
    },
  })
}

function canListen(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(undefined))
    server.listen({ port, host: HOST, exclusive: true }, () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' ? address?.port : undefined))
    })
  })
}

function canBind(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4')
    socket.once('error', () => {
      socket.close()
      resolve(false)
    })
    socket.bind({ port, address: HOST, exclusive: true }, () => socket.close(() => resolve(true)))
  })
}

/** 'node (pid 812)', or undefined when the program is somebody else's and this is not root. */
export async function holderOf(port: number): Promise<string | undefined> {
  const inodes = new Set<string>()
  for (const table of ['tcp', 'tcp6', 'udp', 'udp6'])
    for (const inode of socketsAt(port, await read(`/proc/net/${table}`), table.startsWith('tcp')))
      inodes.add(`socket:[${inode}]`)
  if (inodes.size === 0) return undefined
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name)))
    for (const fd of await readdir(`/proc/${pid}/fd`).catch(() => []))
      if (inodes.has(await readlink(`/proc/${pid}/fd/${fd}`).catch(() => ''))) {
        const words = (await read(`/proc/${pid}/cmdline`))
          .split('\0')
          .filter((w) => !w.startsWith('-'))
        // The program, and for an interpreter what it runs: 'node engine.ts'.
        return `${words
          .slice(0, 2)
          .map((word) => basename(word))
          .join(' ')
          .trim()} (pid ${pid})`
      }
  return undefined
}

const read = (path: string): Promise<string> => readFile(path, 'utf8').catch(() => '')

/** Inodes of listening (TCP) or bound (UDP) sockets at the port, from a table of /proc/net (proc(5)). */
function socketsAt(port: number, table: string, listening: boolean): string[] {
  const hex = port.toString(16).toUpperCase().padStart(4, '0')
  return table
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter((cells) => cells[1]?.endsWith(`:${hex}`) && (!listening || cells[3] === '0A'))
    .flatMap((cells) => cells[9] ?? [])
}
