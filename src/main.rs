fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == slotd::exec::launcher::LAUNCHER_ARG) {
        slotd::exec::launcher::launcher_main(&args[2..]);
    }
}
