//! Requests from clients of the socket, and steps from standard input.

use super::Shell;
use crate::stepmgrd::api::Waiting;
use crate::stepmgrd::run::{NOT_UTF8, fault_of, reader};
use slotd_model::ExitCode;
use slotd_parse::suggest;
use slotd_stepmgr::api::{Ask, Event, Status};
use slotd_stepmgr::core::{Halt, Phase};
use slotd_stepmgr::def::Settings;
use slotd_stepmgr::language::expand::Expander;
use slotd_stepmgr::language::{Fault, Form, in_words, json, parse, strip_bom};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Partial input from standard input.
#[derive(Debug, Default)]
pub struct Input {
    text: Vec<u8>,
    form: Option<Form>,
    /// The number of lines so far.
    lines: u32,
}

/// The names of all requests.
const REQUESTS: [&str; 9] =
    ["watch", "submit", "list", "status", "wait", "cancel", "hold", "release", "top"];

/// Returns the answer for steps that would never run.
fn too_late() -> Event {
    Event::Refused {
        error: "the manager is ending and starts no more steps".to_owned(),
        hint: Some("when it has ended, start a new one: sjobmgr run FILE".to_owned()),
    }
}

/// Returns the error for a client. The position would mean nothing to it.
fn refusal(fault: Fault) -> Event {
    Event::Refused { error: fault.text, hint: fault.hint }
}

fn not_utf8(file: &str, line: u32) -> Fault {
    Fault { file: file.to_owned(), line, text: NOT_UTF8.to_owned(), hint: None }
}

impl Shell {
    /// Reads standard input. Call this when it is readable.
    pub(super) fn read_input(&mut self) {
        let Some(mut input) = self.input.take() else { return };
        let mut chunk = [0u8; 65_536];
        let is_end = match io::stdin().lock().read(&mut chunk) {
            Ok(0) => true,
            Ok(n) => {
                input.text.extend_from_slice(&chunk[..n]);
                false
            }
            Err(e) => e.kind() != io::ErrorKind::Interrupted,
        };
        let end = if is_end {
            input.text.len()
        } else {
            input.text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1)
        };
        input.form =
            input.form.or_else(|| Form::guess(&String::from_utf8_lossy(&input.text[..end])));
        let is_stream = matches!(input.form, Some(Form::Lines | Form::Json));
        if let Some(form) = input.form.filter(|_| is_end || is_stream) {
            let whole: Vec<u8> = input.text.drain(..end).collect();
            self.take_input(&whole, form, &mut input.lines);
        }
        if !is_end {
            self.input = Some(input);
        }
    }

    fn take_input(&mut self, bytes: &[u8], form: Form, lines: &mut u32) {
        const FILE: &str = "standard input";
        if form == Form::Toml {
            let work_dir = self.work_dir.clone();
            let read = reader(&work_dir);
            let text = std::str::from_utf8(bytes).map_err(|_| not_utf8(FILE, 0));
            let steps = text.and_then(|text| parse(form, FILE, text, &read, &mut self.last_number));
            let added = steps.and_then(|steps| self.core.add(steps).map_err(|r| fault_of(FILE, r)));
            return added.map_or_else(|fault| self.refuse_input(&fault), drop);
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            *lines = lines.saturating_add(1);
            let text = std::str::from_utf8(line).map_err(|_| not_utf8(FILE, *lines));
            let text = text.map(|text| if *lines == 1 { strip_bom(text) } else { text });
            if let Err(fault) = text.and_then(|text| self.take_line(text, form, *lines, FILE, None))
            {
                self.refuse_input(&fault);
            }
        }
    }

    fn refuse_input(&mut self, fault: &Fault) {
        self.is_faulty = true;
        self.progress.print(&format!("error: {fault}"));
        if let Some(hint) = &fault.hint {
            self.progress.print(hint);
        }
    }

    /// Adds the steps of one line for a client. Returns their names.
    fn take_line(
        &mut self,
        line: &str,
        form: Form,
        number: u32,
        file: &str,
        owner: Option<u64>,
    ) -> Result<Vec<String>, Fault> {
        let work_dir = self.work_dir.clone();
        let read = reader(&work_dir);
        let mut expander = Expander::new(file, &read, &mut self.last_number);
        match form {
            Form::Json if !line.trim().is_empty() => json::parse_line(line, number, &mut expander)?,
            Form::Json => {}
            Form::Lines | Form::Toml => {
                slotd_stepmgr::language::lines::parse_line(line, number, &mut expander)?
            }
        }
        let names: Vec<String> = expander.steps.iter().map(|step| step.name.to_string()).collect();
        let steps = expander.steps;
        let first = self.core.add(steps).map_err(|refused| fault_of(file, refused))?;
        if let Some(owner) = owner {
            self.owners.extend((first..).zip(&names).map(|(step, _)| (step, owner)));
        }
        Ok(names)
    }

    /// Adds the steps of a whole text for a client. Returns their names.
    fn take_text(
        &mut self,
        file: &str,
        text: &str,
        dir: &str,
        owner: u64,
    ) -> Result<Vec<String>, Fault> {
        let read = reader(Path::new(dir));
        let mut steps = parse(Form::of(file, text), file, text, &read, &mut self.last_number)?;
        for step in &mut steps {
            let own = step.settings.dir.as_deref().unwrap_or_default();
            let whole = Path::new(dir).join(own).to_string_lossy().into();
            step.settings =
                Arc::new(Settings { dir: Some(whole), ..Settings::clone(&step.settings) });
        }
        let names: Vec<String> = steps.iter().map(|step| step.name.to_string()).collect();
        let first = self.core.add(steps).map_err(|refused| fault_of(file, refused))?;
        self.owners.extend((first..).zip(&names).map(|(step, _)| (step, owner)));
        Ok(names)
    }

    pub(super) fn read_clients(&mut self, ready: impl Iterator<Item = bool>, now: Duration) {
        let mut lines = Vec::new();
        for (client, _) in self.api.clients.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            if client.is_open() {
                lines.extend(client.lines().into_iter().map(|line| (client.id, line)));
            }
        }
        for (id, line) in lines {
            self.handle_line(id, &line, now);
        }
    }

    fn handle_line(&mut self, id: u64, line: &str, now: Duration) {
        let is_request = serde_json::from_str::<serde_json::Value>(line)
            .is_ok_and(|value| value.get("request").is_some());
        if !is_request && self.core.halt() != Halt::No {
            return self.api.send(id, &too_late());
        }
        if !is_request {
            match self.take_line(line, Form::Json, 0, "socket", Some(id)) {
                Ok(names) => {
                    names.into_iter().for_each(|name| self.api.send(id, &Event::Accepted { name }))
                }
                Err(fault) => self.api.send(id, &refusal(fault)),
            }
            return;
        }
        match serde_json::from_str(line) {
            Ok(ask) => self.answer(id, ask, now),
            Err(e) => {
                let message = e.to_string();
                let message =
                    message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
                let unknown =
                    message.strip_prefix("unknown variant `").and_then(|rest| rest.split_once('`'));
                let (error, hint) = match unknown {
                    Some((word, _)) => (
                        format!("unknown request {word:?}"),
                        Some(suggest::one_of("requests", word, REQUESTS)),
                    ),
                    None => in_words(message, "an object"),
                };
                self.api.send(id, &Event::Refused { error, hint });
            }
        }
    }

    fn answer(&mut self, id: u64, ask: Ask, now: Duration) {
        let change =
            |shell: &mut Shell,
             names: &[String],
             act: &mut dyn FnMut(&mut Shell, &[u32]) -> u32| match shell.named(names) {
                Ok(steps) => Event::Changed { steps: act(shell, &steps) },
                Err(fault) => refusal(fault),
            };
        let event = match ask {
            Ask::Watch => {
                for client in self.api.clients.iter_mut().filter(|client| client.id == id) {
                    client.watches = true;
                }
                return;
            }
            Ask::Submit { .. } if self.core.halt() != Halt::No => too_late(),
            Ask::Submit { file, text, dir } => match self.take_text(&file, &text, &dir, id) {
                Ok(names) => {
                    let steps = u32::try_from(names.len()).unwrap_or(u32::MAX);
                    names.into_iter().for_each(|name| self.api.send(id, &Event::Accepted { name }));
                    Event::Changed { steps }
                }
                Err(fault) => Event::Refused { error: fault.to_string(), hint: fault.hint },
            },
            Ask::List { names } => match self.named(&names) {
                Ok(steps) => {
                    let steps =
                        steps.into_iter().filter_map(|step| self.core.row(step, now)).collect();
                    Event::List { steps }
                }
                Err(fault) => refusal(fault),
            },
            Ask::Status => Event::Status(Box::new(self.status())),
            Ask::Wait { names } => match self.named(&names) {
                Ok(steps) => return self.wait_for(id, steps),
                Err(fault) => refusal(fault),
            },
            Ask::Cancel { names } => {
                change(self, &names, &mut |shell, steps| shell.core.cancel(steps, now))
            }
            Ask::Hold { names } => change(self, &names, &mut |shell, steps| shell.core.hold(steps)),
            Ask::Release { names } => {
                change(self, &names, &mut |shell, steps| shell.core.release(steps))
            }
            Ask::Top { names } => change(self, &names, &mut |shell, steps| shell.core.top(steps)),
        };
        self.api.send(id, &event);
    }

    /// Returns the steps that match the names and patterns; all steps if there are no names.
    fn named(&self, names: &[String]) -> Result<Vec<u32>, Fault> {
        if names.is_empty() {
            return Ok((0..self.core.counts().all).collect());
        }
        let mut steps = Vec::new();
        for name in names {
            let found = self.core.find(name);
            if found.is_empty() {
                let (text, hint) = (
                    format!("no step is named {name:?}"),
                    "sjobmgr list shows the names".to_owned(),
                );
                return Err(Fault { file: "socket".to_owned(), line: 0, text, hint: Some(hint) });
            }
            steps.extend(found);
        }
        Ok(steps)
    }

    fn status(&self) -> Status {
        let counts = self.core.counts();
        let resources = self.core.resources();
        let (cpus, gpus) = resources.in_use();
        Status {
            job: self.identity.job.0,
            pid: std::process::id(),
            steps: counts.all,
            waiting: counts.waiting(),
            running: counts.running,
            completed: counts.ok,
            failed: counts.failed,
            cancelled: counts.cancelled,
            skipped: counts.skipped,
            cpus,
            mem_mb: resources.whole().tres.mem_mb,
            gpus,
            halted: self.core.halt() != Halt::No,
            undelivered: u32::try_from(self.records.undelivered()).unwrap_or(u32::MAX),
        }
    }

    fn wait_for(&mut self, id: u64, steps: Vec<u32>) {
        let mut waiting = Waiting { left: Default::default(), worst: ExitCode::OK };
        for step in steps {
            match self.core.entry(step).map(|entry| entry.phase) {
                Some(Phase::Ended(slotd_stepmgr::core::StepOutcome::Ok)) | None => {}
                Some(Phase::Ended(_)) => {
                    let exit = self.exits.get(&step).copied().unwrap_or(ExitCode::status(1));
                    waiting.worst = waiting.worst.worse(exit);
                }
                Some(_) => drop(waiting.left.insert(step)),
            }
        }
        for client in self.api.clients.iter_mut().filter(|client| client.id == id) {
            client.waits_for = Some(Waiting { left: waiting.left.clone(), worst: waiting.worst });
        }
        self.answer_waiting();
    }

    /// Removes an ended step from all pending `wait` requests.
    pub(super) fn update_waiting(&mut self, step: u32, exit: ExitCode) {
        for waiting in self.api.clients.iter_mut().filter_map(|client| client.waits_for.as_mut()) {
            if waiting.left.remove(&step) {
                waiting.worst = waiting.worst.worse(exit);
            }
        }
        self.answer_waiting();
    }

    fn answer_waiting(&mut self) {
        let mut done = Vec::new();
        for client in &mut self.api.clients {
            if let Some(waiting) = client.waits_for.take_if(|waiting| waiting.left.is_empty()) {
                done.push((client.id, waiting.worst));
            }
        }
        for (id, worst) in done {
            self.api.send(id, &Event::Waited { exit_code: worst.as_shell() });
        }
    }
}
