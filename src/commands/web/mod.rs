//! `slotd web`: the queue in a browser. It is a client of the daemon like every command: it serves
//! one page on loopback, asks the daemon what the page asks it, and runs the commands of this
//! binary for what the page is to change.
//!
//! | file | what it is |
//! |---|---|
//! | `auth` | who may come in: the token, the session, hosts and origins |
//! | `visitors` | connections that have not authenticated: how many there may be |
//! | `refused` | answers that refuse |
//! | `page` | the files of the page, which are part of the binary |
//! | `rows` | jobs as the page shows them |
//! | `queue` | the host and the queue, and what ended before |
//! | `job` | one job, its script |
//! | `logs` | parts of a job's output |
//! | `events` | what has changed, as it changes |
//! | `actions` | submitting, cancelling and the like |

use crate::args::error::CliError;
use crate::client::connection::Connection;
use crate::commands::{Done, output, paths};
use crate::sys::start;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::{DefaultHeaders, Next, from_fn};
use actix_web::{App, Error, HttpResponse, HttpServer, ResponseError, web};
use auth::Auth;
use nix::sys::signal::SigHandler;
use refused::Refused;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;
use visitors::Visitors;

mod actions;
mod auth;
mod events;
mod job;
mod logs;
mod page;
mod queue;
mod refused;
mod rows;
mod series;
mod visitors;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd web\n  ssh -L 8080:127.0.0.1:8080 host slotd web --port 8080    from another machine"
)]
pub struct WebArgs {
    /// Port to listen at; 0 takes one that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Address to listen at: 127.0.0.1, [::1] or another one of this host alone
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: String,
}

/// The longest body of a request, in bytes: a script with its options.
const MOST_BODY: usize = 4 << 20;

/// Connections at once, of all tabs together.
const MOST_CONNECTIONS: usize = 128;

/// How long the head of a request may take. A browser sends it at once.
const LONGEST_HEAD: Duration = Duration::from_secs(3);

/// Questions that are put to the daemon, and programs that are run, at once.
const MOST_ASKING: usize = 8;

pub fn run(args: &WebArgs) -> Done {
    let address = address(args)?;
    // Who looks at a page without a queue learns nothing.
    drop(Connection::open(&paths()?)?);
    let failed = |e: io::Error| CliError::error(1, format!("cannot listen at {address}: {e}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    let auth = Auth::new().map_err(|e| CliError::error(1, format!("/dev/urandom: {e}")))?;
    // A browser that goes away ends its connection and nothing else.
    start::on_broken_pipe(SigHandler::SigIgn);
    eprintln!("Open this address in a browser. It opens once; Ctrl-C ends the server.");
    output::print(&format!("http://{at}/?token={}\n", auth.token()))?;
    let ended = actix_rt::System::new().block_on(serve(listener, auth));
    ended.map(|()| 0).map_err(|e| CliError::error(1, format!("the server ended: {e}")))
}

/// Nobody but this host's own users gets as far as the token.
fn address(args: &WebArgs) -> Result<SocketAddr, CliError> {
    let bare = args
        .listen
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(&args.listen);
    match bare.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => Ok(SocketAddr::new(ip, args.port)),
        Ok(_) => Err(CliError::error(2, format!("--listen {}: this is no address of loopback", args.listen))
            .hint("from another machine: ssh -L 8080:127.0.0.1:PORT HOST, and open the address with port 8080")),
        Err(_) => {
            Err(CliError::error(2, format!("--listen {}: this is no IP address", args.listen))
                .hint("127.0.0.1 or [::1]"))
        }
    }
}

async fn serve(listener: TcpListener, auth: Auth) -> io::Result<()> {
    let auth = web::Data::new(auth);
    let streams = web::Data::new(events::Streams::default());
    let app = move || {
        App::new()
            .app_data(auth.clone())
            .app_data(streams.clone())
            .app_data(web::PayloadConfig::new(MOST_BODY))
            .app_data(
                web::JsonConfig::default()
                    .limit(MOST_BODY)
                    .error_handler(|e, _| Refused::bad(e).into()),
            )
            .app_data(web::QueryConfig::default().error_handler(|e, _| Refused::bad(e).into()))
            .wrap(from_fn(guard))
            .wrap(headers())
            .configure(routes)
    };
    let visitors = Visitors::default();
    HttpServer::new(app)
        .on_connect(move |io, of_connection| visitors.connected(io, of_connection))
        .client_request_timeout(LONGEST_HEAD)
        .workers(1)
        .worker_max_blocking_threads(MOST_ASKING)
        .max_connections(MOST_CONNECTIONS)
        .shutdown_timeout(1)
        .listen(listener)?
        .run()
        .await
}

fn routes(app: &mut web::ServiceConfig) {
    app.route("/", web::get().to(page::open))
        .route("/page/{file}", web::get().to(page::file))
        .route("/api/queue", web::get().to(queue::now))
        .route("/api/history", web::get().to(queue::history))
        .route("/api/events", web::get().to(events::stream))
        .route("/api/job/{job}", web::get().to(job::details))
        .route("/api/series", web::get().to(series::of_host))
        .route("/api/job/{job}/series", web::get().to(series::job))
        .route("/api/job/{job}/script", web::get().to(job::script))
        .route("/api/job/{job}/edit", web::get().to(actions::editable))
        .route("/api/job/{job}/edit", web::post().to(actions::edit))
        .route("/api/job/{job}/log/{stream}", web::get().to(logs::part))
        .route("/api/act", web::post().to(actions::act))
        .route("/api/submit", web::post().to(actions::submit))
        .default_service(web::to(nowhere));
}

async fn nowhere() -> Result<HttpResponse, Refused> {
    Err(Refused::missing("there is no such page"))
}

/// What a browser is told of every answer: to run nothing but the files of the page, to show it in
/// no other one, to keep nothing.
fn headers() -> DefaultHeaders {
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                  trusted-types 'none'";
    DefaultHeaders::new()
        .add(("Content-Security-Policy", policy))
        .add(("X-Content-Type-Options", "nosniff"))
        .add(("X-Frame-Options", "DENY"))
        .add(("Referrer-Policy", "no-referrer"))
        .add(("Cross-Origin-Opener-Policy", "same-origin"))
        .add(("Cross-Origin-Resource-Policy", "same-origin"))
        .add(("Cache-Control", "no-store"))
}

/// Lets nothing through that [`auth`] refuses.
async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let refused = match request.app_data::<web::Data<Auth>>() {
        Some(auth) => auth.refuses(request.request()),
        None => Some(Refused {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            why: "the server has no authentication".to_owned(),
        }),
    };
    match refused {
        None => {
            // The page itself is served to anyone who shows the token: it is its own guard.
            if request.path() != "/" {
                visitors::authenticated(request.request());
            }
            Ok(next.call(request).await?.map_into_boxed_body())
        }
        Some(refused) => Ok(request.into_response(refused.error_response()).map_into_boxed_body()),
    }
}
