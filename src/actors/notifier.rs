//! NotifierActor: tells people what happens to the queue, by `SLOTD_NOTIFY_CMD`, by mail, and by
//! posts to `SLOTD_NOTIFY_URL`.
//!
//! Owns the processes that tell, and what waits for them: commands, and messengers (processes of
//! this program that send mail or post). Receives [`Notify`]. Sends [`NoticeGiven`] once a command
//! has started, a mail was sent or a post was taken, or one of these was given up, so that the next
//! daemon tells what this one has not: after a crash something may be told twice. What fails, hangs
//! or floods touches no job. Of each kind a few run at once (posts go out one after the other, in
//! their order) and [`MAX_WAITING`] wait; beyond that the oldest waiting one is given up and
//! logged. A command or a mail that outlives its time-out is killed with its process group. If it
//! dies, notifications end and everything else goes on.

mod children;
mod poster;

use crate::actors::messages::{NoticeGiven, Notify};
use crate::model::notice::{Channel, Notice};
use crate::parse::web_address::WebAddress;
use actix::prelude::*;
use children::{Ended, run_hook, run_mail};
use poster::{Poster, Sent};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Commands that run at once.
const MAX_COMMANDS: usize = 4;
/// Mails that are sent at once.
const MAX_MAILS: usize = 2;
const MAX_WAITING: usize = 10_000;

/// The program of this process, be it replaced on disk or not.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// By which ways people are told. What comes for one that there is not is told by nobody.
#[derive(Debug, Clone, Default)]
pub struct Ways {
    /// It is given to `/bin/sh -c`.
    pub command: Option<OsString>,
    pub url: Option<WebAddress>,
    /// The program that mail is handed to.
    pub sendmail: Option<PathBuf>,
    /// For a command, for a mail, and for one try of a post.
    pub timeout: Duration,
}

/// What goes one way.
struct Lane {
    most: usize,
    running: usize,
    waiting: VecDeque<Notify>,
}

impl Lane {
    fn of(most: usize) -> Lane {
        Lane { most, running: 0, waiting: VecDeque::new() }
    }

    /// The one that is given up for it.
    fn push(&mut self, notify: Notify) -> Option<Notify> {
        self.waiting.push_back(notify);
        if self.waiting.len() > MAX_WAITING { self.waiting.pop_front() } else { None }
    }

    /// One whose turn it is.
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
    /// The messenger that posts, between two posts.
    poster: Option<Poster>,
}

/// What a notice is about, for the log.
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
                    Ended::Told => actor.given.do_send(NoticeGiven(number)),
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
                // Its standard input ends, and so does it.
                self.poster = None;
            }
            return;
        };
        let number = event.number;
        let post = poster::post(self.poster.take(), url, self.ways.timeout, event);
        ctx.spawn(post.into_actor(self).map(move |Sent { poster, is_told }, actor, ctx| {
            actor.posts.running -= 1;
            actor.poster = poster;
            if is_told {
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
                "too many notifications wait: the one for {} is dropped",
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
