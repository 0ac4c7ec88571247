// What an agent must know after a restart: who it is, what it has seen, which commands it ran.
//
// Invariants
// 1. No secret stands here: the key is a file of its own, and of the token only the hash is kept.
// 2. One agent a folder: the database is locked for as long as the process lives.
// 3. A write is on disk before it is answered (SQLite's full synchronization): an epoch seen is never forgotten.
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { AppError, messageOf } from '#lib/error.ts'

/** Learned at the first welcome, and kept up to date by the following ones. */
export type Membership = {
  nodeRecordId: string
  orgId: string
  nodeId: string
  /** The fleet root's public key, in hex. */
  fleetRoot: string
  identityGeneration: number
  /** The newest that this node has seen. */
  epoch: number
  generation: number
  /** SHA-256 of the token that admitted it, in hex. */
  tokenHash: string
  /** Name of the file of the key that is bound. */
  keyFile: string
  /** DER. */
  certificate: Uint8Array
}

export type CommandEntry = { ok: boolean; output: string } | 'running'

/** Finished commands that are remembered; the engine asks about open ones only. */
const COMMANDS_KEPT = 200

const SCHEMA = `
  create table if not exists membership (
    one integer primary key check (one = 1),
    node_record_id text not null, org_id text not null, node_id text not null, fleet_root text not null,
    identity_generation integer not null, epoch integer not null, generation integer not null,
    token_hash text not null, key_file text not null, certificate blob not null
  ) strict;
  create table if not exists commands (
    seq integer primary key autoincrement, id text not null unique, ok integer, output text
  ) strict;
`

export class Journal {
  readonly #db: DatabaseSync

  private constructor(db: DatabaseSync) {
    this.#db = db
  }

  /** Opens or makes it. Errors: INVALID_STATE `DATA_DIR_IN_USE`, `DATA_DIR`. */
  static open(dataDir: string): Journal {
    const path = join(dataDir, 'journal.sqlite')
    try {
      const db = new DatabaseSync(path)
      // The exclusive lock is taken by the first write and kept.
      db.exec(
        'pragma locking_mode = exclusive; pragma synchronous = full; begin exclusive; commit;',
      )
      db.exec(SCHEMA)
      return new Journal(db)
    } catch (cause) {
      const locked = /locked|busy/.test(messageOf(cause))
      throw new AppError(
        'INVALID_STATE',
        locked
          ? `another agent runs on the data folder ${dataDir}`
          : `the journal ${path} cannot be used`,
        {
          cause,
          details: locked
            ? {
                reason: 'DATA_DIR_IN_USE',
                next: 'stop that one, or give this one its own --data-dir',
              }
            : { reason: 'DATA_DIR', next: 'give a folder of your own with --data-dir' },
        },
      )
    }
  }

  get membership(): Membership | undefined {
    const row = this.#db.prepare('select * from membership').get()
    if (!row) return undefined
    return {
      nodeRecordId: String(row['node_record_id']),
      orgId: String(row['org_id']),
      nodeId: String(row['node_id']),
      fleetRoot: String(row['fleet_root']),
      identityGeneration: Number(row['identity_generation']),
      epoch: Number(row['epoch']),
      generation: Number(row['generation']),
      tokenHash: String(row['token_hash']),
      keyFile: String(row['key_file']),
      certificate: row['certificate'] as Uint8Array,
    }
  }

  saveMembership(of: Membership): void {
    this.#db
      .prepare('insert or replace into membership values (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)')
      .run(
        of.nodeRecordId,
        of.orgId,
        of.nodeId,
        of.fleetRoot,
        of.identityGeneration,
        of.epoch,
        of.generation,
        of.tokenHash,
        of.keyFile,
        of.certificate,
      )
  }

  saveGeneration(generation: number): void {
    this.#db.prepare('update membership set generation = ?').run(generation)
  }

  saveCertificate(certificate: Uint8Array): void {
    this.#db.prepare('update membership set certificate = ?').run(certificate)
  }

  command(id: string): CommandEntry | undefined {
    const row = this.#db.prepare('select ok, output from commands where id = ?').get(id)
    if (!row) return undefined
    return row['ok'] === null
      ? 'running'
      : { ok: row['ok'] === 1, output: String(row['output'] ?? '') }
  }

  beginCommand(id: string): void {
    this.#db.prepare('insert into commands (id) values (?) on conflict do nothing').run(id)
  }

  endCommand(id: string, { ok, output }: { ok: boolean; output: string }): void {
    this.#db
      .prepare('update commands set ok = ?, output = ? where id = ?')
      .run(ok ? 1 : 0, output, id)
    this.#db
      .prepare('delete from commands where seq <= (select max(seq) from commands) - ?')
      .run(COMMANDS_KEPT)
  }

  close(): void {
    this.#db.close()
  }
}
