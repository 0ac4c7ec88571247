// Takes out of the generated glue what a component without async functions never needs. The generator wraps every
// call of the host in a task and a subtask of the asynchronous component model: promises, handles, handlers, three
// quarters of what a small invocation costs. Ours are called and return.
//
// Invariants
// 1. Glue that holds an asynchronous function is left as it is.
// 2. The edits are of the generator's own lines, which carry parentheses and braces: no name of a component may hold
//    those (binary/safe-name.ts), so none can pose as such a line.
// 3. A form that this version does not know is an error at deploy, not a surprise at the first invocation.

/** Calls that only format a message for nobody: the minifier drops them. */
export const PURE_CALLS = ['_debugLog']

const ASYNC = /\b(?:isAsync|funcTypeIsAsync|async): true\b/

/** An import that may be asked to suspend, if the host's function is marked so: ours are not. */
const SUSPENDING =
  /_trampoline(\d+)\.manuallyAsync \? new WebAssembly\.Suspending\((?:(?!importFn:)[^])*?importFn: _trampoline\1,\s*\},\s*\)\)\) : /g

/** An import that goes through a task, with how its parameters would be lifted and its result lowered. */
const LOWERED =
  /_lowerImportBackwardsCompat\.bind\(\s*null,\s*\{\s*trampolineIdx: (\d+),\s*componentIdx: (\d+),\s*isAsync: false,(?:(?!importFn:)[^])*?funcTypeIsAsync: false,(?:(?!importFn:)[^])*?importFn: _trampoline\1,\s*\},\s*\)/g

const NEW_TASK = '  function createNewCurrentTask(args) {'
const LATEST_SUBTASK = 'subtask = parentTask.getLatestSubtask();'
const MAY_SUSPEND = /Object\.assign\(([^{}\n]*?), \{ _jcoMaySuspend: false \}\)/g
const REALLOC_ASYNC =
  /try \{\s*(realloc\d+Async) = WebAssembly\.promising\([^)]*\);\s*\} catch\(err\) \{\s*\1 = [^;]*;\s*\}/g

/**
 * What an import of the host is called through: it answers for the task that the generated function makes, and hands
 * back what that was resolved with.
 */
const HOST_CALL = `
  class HostCall {
    result;
    id() { return -1; }
    componentIdx() { return -1; }
    setParentSubtask() {}
    getParentSubtask() {}
    enterSync() {}
    setErrored() {}
    reject() {}
    exit() {}
    resolve(results) { this.result = results[0]; }
  }
  let _hostCall;
  function _hostImport(componentIdx, run) {
    return (...params) => {
      _checkMayLeave(componentIdx);
      const outer = _hostCall;
      const call = new HostCall();
      _hostCall = call;
      try {
        run(...params);
      } finally {
        _hostCall = outer;
      }
      return call.result;
    };
  }
${NEW_TASK}
    if (args.componentIdx === -1 && _hostCall !== undefined) return [_hostCall, -1];
`

/** The generator's glue, before it is minified, without what it does not need. Throws on a form it does not know. */
export function leanGlue(source: string): string {
  if (ASYNC.test(source)) return source
  const direct = source
    .replaceAll(SUSPENDING, '')
    .replaceAll(
      LOWERED,
      (_, trampoline, component) => `_hostImport(${component}, _trampoline${trampoline})`,
    )
    .replaceAll(MAY_SUSPEND, '$1')
    .replaceAll(REALLOC_ASYNC, '')
  if (direct.includes('_lowerImportBackwardsCompat.bind('))
    throw new Error('the generator emits imports in a form that this version does not know')
  if (!direct.includes('_hostImport(')) return direct
  const [before, after, ...more] = direct.split(NEW_TASK)
  if (before === undefined || after === undefined || more.length > 0)
    throw new Error('the generator emits tasks in a form that this version does not know')
  return `${before}${HOST_CALL}${after}`.replaceAll(
    LATEST_SUBTASK,
    'subtask = _hostCall ?? parentTask.getLatestSubtask();',
  )
}
