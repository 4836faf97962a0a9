//! NotifierActor: sends notifications through `SLOTD_NOTIFY_CMD`, by mail, and by HTTP POST to
//! `SLOTD_NOTIFY_URL`.
//!
//! Owns the sending processes and a queue for each kind. The processes are commands, and messengers
//! (processes of this program that send emails or posts). Receives [`Notify`]. Sends
//! [`NoticeGiven`] once a command has started, an email was sent, a post was accepted, or one of
//! these was abandoned, so that the next daemon sends only the rest. After a crash, a notification
//! may be sent twice.
//!
//! Notifications never affect jobs, even if they fail, hang or arrive in large numbers. A few
//! commands and emails run at once, posts are sent one after the other in order, and up to
//! [`MAX_WAITING`] of each kind wait; beyond that the oldest is dropped and logged. A command or an
//! email that exceeds its timeout is killed with its process group. If the actor dies,
//! notifications stop and everything else continues.

mod children;
mod poster;

use crate::actors::messages::{NoticeGiven, Notify};
use actix::prelude::*;
use children::{Ended, run_hook, run_mail};
use poster::{Poster, Sent};
use slotd_model::notice::{Channel, Notice};
use slotd_parse::web_address::WebAddress;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The maximum number of commands to run at once.
const MAX_COMMANDS: usize = 4;
/// The maximum number of emails to send at once.
const MAX_MAILS: usize = 2;
const MAX_WAITING: usize = 10_000;

/// The running program, even if its file has been replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The configured channels. Notifications for other channels are discarded.
#[derive(Debug, Clone, Default)]
pub struct Ways {
    /// A command line for `/bin/sh -c`.
    pub command: Option<OsString>,
    pub url: Option<WebAddress>,
    /// The program that sends email.
    pub sendmail: Option<PathBuf>,
    /// The timeout of a command, of an email, and of each attempt to post.
    pub timeout: Duration,
}

/// The notifications of one channel.
struct Lane {
    most: usize,
    running: usize,
    waiting: VecDeque<Notify>,
}

impl Lane {
    fn of(most: usize) -> Lane {
        Lane { most, running: 0, waiting: VecDeque::new() }
    }

    /// Adds a notification. Returns the one that is dropped if too many wait.
    fn push(&mut self, notify: Notify) -> Option<Notify> {
        self.waiting.push_back(notify);
        if self.waiting.len() > MAX_WAITING { self.waiting.pop_front() } else { None }
    }

    /// Returns the next notification if another one may be sent now.
    fn next(&mut self) -> Option<Notify> {
        let next = if self.running < self.most { self.waiting.pop_front() } else { None };
        self.running += usize::from(next.is_some());
        next
    }
}

pub struct NotifierActor {
    ways: Ways,
    given: Recipient<NoticeGiven>,
    commands: Lane,
    mails: Lane,
    posts: Lane,
    /// The messenger that posts, while it is idle.
    poster: Option<Poster>,
}

/// Describes the subject of a notification, for the log.
fn about(notice: &Notice) -> String {
    let event = notice.event;
    if notice.job_id.is_empty() {
        format!("event {}", event.name())
    } else {
        format!("job {}", notice.job_id)
    }
}

impl NotifierActor {
    pub fn new(ways: Ways, given: Recipient<NoticeGiven>) -> Self {
        let [commands, mails, posts] = [MAX_COMMANDS, MAX_MAILS, 1].map(Lane::of);
        NotifierActor { ways, given, commands, mails, posts, poster: None }
    }

    fn start_commands(&mut self, ctx: &mut Context<Self>) {
        let Some(command) = self.ways.command.clone() else { return };
        while let Some(event) = self.commands.next() {
            let hook = run_hook(command.clone(), event, self.ways.timeout, self.given.clone());
            ctx.spawn(hook.into_actor(self).map(|(), actor, ctx| {
                actor.commands.running -= 1;
                actor.start_commands(ctx);
            }));
        }
    }

    fn start_mails(&mut self, ctx: &mut Context<Self>) {
        let Some(sendmail) = self.ways.sendmail.clone() else { return };
        while let Some(event) = self.mails.next() {
            let number = event.number;
            let mail = run_mail(sendmail.clone(), event, self.ways.timeout);
            ctx.spawn(mail.into_actor(self).map(move |ended, actor, ctx| {
                actor.mails.running -= 1;
                match ended {
                    Ended::Final => actor.given.do_send(NoticeGiven(number)),
                    Ended::NotStarted => {}
                }
                actor.start_mails(ctx);
            }));
        }
    }

    fn start_posts(&mut self, ctx: &mut Context<Self>) {
        let Some(url) = self.ways.url.clone() else { return };
        let Some(event) = self.posts.next() else {
            if self.posts.running == 0 {
                // The messenger exits when its standard input is closed.
                self.poster = None;
            }
            return;
        };
        let number = event.number;
        let post = poster::post(self.poster.take(), url, self.ways.timeout, event);
        ctx.spawn(post.into_actor(self).map(move |Sent { poster, is_final }, actor, ctx| {
            actor.posts.running -= 1;
            actor.poster = poster;
            if is_final {
                actor.given.do_send(NoticeGiven(number));
            }
            actor.start_posts(ctx);
        }));
    }
}

impl Actor for NotifierActor {
    type Context = Context<Self>;
}

impl Handler<Notify> for NotifierActor {
    type Result = ();

    fn handle(&mut self, event: Notify, ctx: &mut Self::Context) {
        let Ways { command, url, sendmail, .. } = &self.ways;
        let (lane, is_there) = match event.notice.channel {
            Channel::Command => (&mut self.commands, command.is_some()),
            Channel::Url => (&mut self.posts, url.is_some()),
            Channel::Mail(_) => (&mut self.mails, sendmail.is_some()),
        };
        if !is_there {
            return self.given.do_send(NoticeGiven(event.number));
        }
        let channel = event.notice.channel;
        if let Some(dropped) = lane.push(event) {
            log::warn!(
                "too many pending notifications: dropped the one for {}",
                about(&dropped.notice)
            );
            self.given.do_send(NoticeGiven(dropped.number));
        }
        match channel {
            Channel::Command => self.start_commands(ctx),
            Channel::Url => self.start_posts(ctx),
            Channel::Mail(_) => self.start_mails(ctx),
        }
    }
}

#[cfg(test)]
mod tests;
