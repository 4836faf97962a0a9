//! The crontab of the client's user.

use super::submit::too_short;
use super::{Replied, Session, plain, refused};
use crate::actors::messages::{QueryCrontab, RemoveCrontab, ReplaceCrontab};
use slotd_model::Refusal;
use slotd_model::change::LaunchTexts;
use slotd_model::job::Client;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::InstallCrontab;
use slotd_sched::{EntryToInstall, Submission, dependency_targets};
use std::sync::Arc;

impl Session {
    pub(super) async fn crontab(&self) -> Replied {
        let text = self.hub.scheduler.send(QueryCrontab { uid: self.uid }).await?;
        let exists = text.is_some();
        Ok(Some((Answer::Crontab { exists }, text.unwrap_or_default())))
    }

    pub(super) async fn remove_crontab(&self) -> Replied {
        Ok(match self.hub.scheduler.send(RemoveCrontab { uid: self.uid }).await? {
            Ok(()) => plain(Answer::Recorded),
            Err(why) => refused(why),
        })
    }

    /// Installs a crontab. The scheduler commits it together with its jobs.
    pub(super) async fn install_crontab(&self, crontab: InstallCrontab, raw: Vec<u8>) -> Replied {
        let InstallCrontab { text_len, entries, client } = crontab;
        let lens = entries.iter().flat_map(|entry| [entry.job.script_len, entry.env_len]);
        if lens.fold(text_len, usize::saturating_add) > raw.len() {
            return Ok(too_short());
        }
        let (text, mut texts) = raw.split_at(text_len);
        // The jobs that it depends on must not be deleted before it is durable.
        let _in_use = Arc::clone(&self.hub.past_in_use).read_owned().await;
        let client = Some(Client { process: client, ..Client::default() });
        let mut to_install = Vec::with_capacity(entries.len());
        for entry in entries {
            let mut request = entry.job.request;
            if request.array.is_some() || request.snapshot.is_some() {
                let why = "malformed message: neither an array nor a copy can recur";
                return Ok(refused(Refusal::Malformed(why.to_owned())));
            }
            request.tree = None;
            let (script, rest) = texts.split_at(entry.job.script_len);
            let (env, rest) = rest.split_at(entry.env_len);
            texts = rest;
            let ended = self.facts_of(dependency_targets([&request.dependency])).await?;
            let own = LaunchTexts { script: script.to_vec(), env: env.to_vec() };
            let submission = Submission { request, texts: own, client, ended, first_step: None };
            let (recurrence, lines) = (entry.recurrence, entry.lines);
            to_install.push(EntryToInstall { submission, recurrence, lines });
        }
        let message = ReplaceCrontab { uid: self.uid, text: text.to_vec(), entries: to_install };
        let installed = self.hub.scheduler.send(message).await?;
        Ok(plain(match installed {
            Ok(jobs) => Answer::CrontabInstalled(jobs),
            Err((Some(entry), why)) => Answer::CrontabRefused { entry, why },
            Err((None, why)) => Answer::Refused(why),
        }))
    }
}
