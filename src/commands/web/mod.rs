//! `slotd web`: the queue in a browser. Like every command, it is a client of the daemon. It serves
//! one page on loopback, forwards the page's queries to the daemon, and runs commands of this
//! binary to change jobs.
//!
//! | file | purpose |
//! |---|---|
//! | `auth` | authentication: the token, the session, hosts and origins |
//! | `visitors` | the limit on unauthenticated connections |
//! | `refused` | error responses |
//! | `page` | the files of the page, embedded in the binary |
//! | `rows` | jobs as rows of the page |
//! | `live` | the picture of the queue, kept current by one task for all pages |
//! | `queue` | the current queue and the history as JSON |
//! | `host` | the host as JSON: resources, partitions, licenses and reservations |
//! | `job` | the details of one job, its script and its environment |
//! | `series` | the usage of a job or the host over time |
//! | `logs` | parts of a job's output |
//! | `events` | changes of the queue, of a job and of its outputs |
//! | `actions` | submitting, editing and cancelling jobs, and other actions |

use crate::args::error::CliError;
use crate::client::connection::Connection;
use crate::commands::{Done, output, paths};
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::{DefaultHeaders, Next, from_fn};
use actix_web::{App, Error, HttpResponse, HttpServer, ResponseError, web};
use auth::Auth;
use nix::sys::signal::SigHandler;
use refused::Refused;
use slotd_sys::start;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;
use visitors::Visitors;

mod actions;
mod auth;
mod events;
mod host;
mod job;
mod live;
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
    /// Listen on this port; 0 selects a free port
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Listen on this loopback address, such as 127.0.0.1 or [::1]
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: String,
}

/// Maximum size of a request body, bytes: a script with its options.
const MOST_BODY: usize = 4 << 20;

/// Maximum number of connections, for all tabs together.
const MOST_CONNECTIONS: usize = 128;

/// The time limit for the head of a request. A browser sends it immediately.
const LONGEST_HEAD: Duration = Duration::from_secs(3);

/// Maximum number of concurrent requests to the daemon.
const MOST_ASKING: usize = 8;

pub fn run(args: &WebArgs) -> Done {
    let address = address(args)?;
    // Without a daemon, the page would be empty.
    drop(Connection::open(&paths()?)?);
    let failed = |e: io::Error| CliError::error(1, format!("cannot listen on {address}: {e}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    let auth = Auth::new().map_err(|e| CliError::error(1, format!("/dev/urandom: {e}")))?;
    // A browser that disconnects ends its connection, not the server.
    start::on_broken_pipe(SigHandler::SigIgn);
    report!("Open this URL in a browser. It works once. Press Ctrl-C to stop the server.");
    output::print(&format!("http://{at}/?token={}\n", auth.token()))?;
    let ended = actix_rt::System::new().block_on(serve(listener, auth));
    ended.map(|()| 0).map_err(|e| CliError::error(1, format!("the server failed: {e}")))
}

/// Returns the address to listen on. Only loopback is allowed, so that other hosts cannot connect.
fn address(args: &WebArgs) -> Result<SocketAddr, CliError> {
    let bare = args
        .listen
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(&args.listen);
    match bare.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => Ok(SocketAddr::new(ip, args.port)),
        Ok(_) => Err(CliError::error(2, format!("--listen {}: not a loopback address", args.listen))
            .hint("to connect from another machine, run ssh -L 8080:127.0.0.1:PORT HOST and open the URL with port 8080")),
        Err(_) => {
            Err(CliError::error(2, format!("--listen {}: not an IP address", args.listen))
                .hint("use 127.0.0.1 or [::1]"))
        }
    }
}

async fn serve(listener: TcpListener, auth: Auth) -> io::Result<()> {
    let auth = web::Data::new(auth);
    let streams = web::Data::new(events::Streams::default());
    let live = web::Data::new(live::Live::default());
    let app = move || {
        App::new()
            .app_data(auth.clone())
            .app_data(streams.clone())
            .app_data(live.clone())
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
        .route("/api/history", web::get().to(queue::history))
        .route("/api/report", web::get().to(queue::report))
        .route("/api/events", web::get().to(events::stream))
        .route("/api/job/{job}", web::get().to(job::details))
        .route("/api/series", web::get().to(series::of_host))
        .route("/api/lines", web::get().to(logs::last_lines))
        .route("/api/job/{job}/dependents", web::get().to(job::dependents))
        .route("/api/job/{job}/series", web::get().to(series::job))
        .route("/api/job/{job}/script", web::get().to(job::script))
        .route("/api/job/{job}/env", web::get().to(job::environment))
        .route("/api/job/{job}/source", web::get().to(job::source))
        .route("/api/job/{job}/edit", web::get().to(actions::editable))
        .route("/api/job/{job}/edit", web::post().to(actions::edit))
        .route("/api/job/{job}/limit", web::post().to(actions::limit))
        .route("/api/job/{job}/log/{stream}", web::get().to(logs::part))
        .route("/api/act", web::post().to(actions::act))
        .route("/api/predict", web::post().to(actions::predict))
        .route("/api/submit", web::post().to(actions::submit))
        .default_service(web::to(nowhere));
}

async fn nowhere() -> Result<HttpResponse, Refused> {
    Err(Refused::missing("no such page"))
}

/// Returns the headers of every response. They allow only the embedded files to run, forbid frames,
/// and disable caching.
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

/// Refuses requests that [`auth`] does not allow.
async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let refused = match request.app_data::<web::Data<Auth>>() {
        Some(auth) => auth.refuses(request.request()),
        None => Some(Refused {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            why: "authentication is not configured".to_owned(),
        }),
    };
    match refused {
        None => {
            // The handler of the page checks the token or the session itself.
            if request.path() != "/" {
                visitors::authenticated(request.request());
            }
            Ok(next.call(request).await?.map_into_boxed_body())
        }
        Some(refused) => Ok(request.into_response(refused.error_response()).map_into_boxed_body()),
    }
}
