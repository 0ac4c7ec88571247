using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [ (name = "words", worker = .words) ],
  sockets = [ (name = "http", address = "127.0.0.1:0", http = (), service = "words") ]
);

const words :Workerd.Worker = (
  compatibilityDate = "2026-11-01",
  modules = [
    (name = "words.mjs", esModule = embed "words.mjs"),
    (name = "words.wasm", wasm = embed "../../../../examples/word-count/word-count.core.wasm")
  ]
);
