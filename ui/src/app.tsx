/** The page: the session, then the shell around the routes. Routes that few visits need are loaded when they are opened. */

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { Component, lazy, type ReactNode, Suspense, useCallback, useEffect, useMemo, useState } from "react";
import { Route, Switch, useLocation } from "wouter";
import { ApiProblem, setSessionHeader, whenSessionIsLost } from "./api/client";
import { LiveProvider } from "./api/live";
import { readAbout, readSession, signIn, signOut } from "./api/queries";
import { type Session, SessionContext, takeSignInCode } from "./api/session";
import { Empty, Loading, Problem } from "./components/basics";
import { DialogProvider } from "./components/dialog";
import { Shell } from "./components/shell";
import { setServerTime } from "./lib/now";
import { GraphsPage } from "./pages/graphs";
import { OverviewPage } from "./pages/overview";
import { SignInPage } from "./pages/sign-in";

const GraphPage = lazy(() => import("./pages/graph").then((found) => ({ default: found.GraphPage })));
const TaskPage = lazy(() => import("./pages/task").then((found) => ({ default: found.TaskPage })));
const TasksPage = lazy(() => import("./pages/tasks").then((found) => ({ default: found.TasksPage })));
const FleetPage = lazy(() => import("./pages/fleet").then((found) => ({ default: found.FleetPage })));
const BotPage = lazy(() => import("./pages/bot").then((found) => ({ default: found.BotPage })));
const LimitsPage = lazy(() => import("./pages/limits").then((found) => ({ default: found.LimitsPage })));
const SubmitPage = lazy(() => import("./pages/submit").then((found) => ({ default: found.SubmitPage })));
const EventsPage = lazy(() => import("./pages/events").then((found) => ({ default: found.EventsPage })));
const CataloguePage = lazy(() => import("./pages/catalogue").then((found) => ({ default: found.CataloguePage })));
const DocumentPage = lazy(() => import("./pages/document").then((found) => ({ default: found.DocumentPage })));
const AuditPage = lazy(() => import("./pages/audit").then((found) => ({ default: found.AuditPage })));
const TokensPage = lazy(() => import("./pages/tokens").then((found) => ({ default: found.TokensPage })));
const SecretsPage = lazy(() => import("./pages/secrets").then((found) => ({ default: found.SecretsPage })));

const RETRIES_MAX = 2;

function newQueries(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 2_000,
        refetchOnWindowFocus: true,
        // What is refused will be refused again; what failed on the way may not.
        retry: (count, error) => count < RETRIES_MAX && (!(error instanceof ApiProblem) || error.status === 0 || error.status === 429 || error.status >= 500),
      },
    },
  });
}

/** Shows that a part of the page has failed, and leaves the rest as it is. */
class Guard extends Component<{ place: string; children: ReactNode }, { error: unknown }> {
  override state = { error: null as unknown };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override componentDidUpdate(before: { place: string }) {
    if (before.place !== this.props.place && this.state.error !== null) {
      this.setState({ error: null });
    }
  }

  override render() {
    return this.state.error === null ? this.props.children : (
      <main className="page">
        <Problem error={this.state.error} again={() => this.setState({ error: null })} />
      </main>
    );
  }
}

export function App() {
  const [queries] = useState(newQueries);
  const [session, setSession] = useState<Session | null | undefined>(undefined);
  const [notice, setNotice] = useState("");

  const accept = useCallback((found: Session) => {
    setSessionHeader(found.header);
    setSession(found);
    setNotice("");
    void readAbout().then((about) => setServerTime(about.now_ms)).catch(() => undefined);
  }, []);
  const leave = useCallback(
    (why = "") => {
      setSessionHeader("");
      queries.clear();
      setSession(null);
      setNotice(why);
    },
    [queries],
  );

  useEffect(() => {
    whenSessionIsLost(() => leave("Your session is over. Sign in again."));
    const code = takeSignInCode();
    const begin = code === null ? readSession() : signIn({ code }).catch(() => readSession());
    begin.then(accept).catch((error: unknown) => leave(error instanceof ApiProblem && error.status === 401 ? "" : (error as Error).message));
  }, [accept, leave]);

  const context = useMemo(
    () => (session === null || session === undefined ? null : { session, leave: () => void signOut().catch(() => undefined).then(() => leave()) }),
    [session, leave],
  );
  const onRefused = useCallback(() => leave("Your session is over. Sign in again."), [leave]);
  if (session === undefined) {
    return null;
  }
  if (context === null) {
    return <SignInPage notice={notice} onSignedIn={accept} />;
  }
  return (
    <QueryClientProvider client={queries}>
      <SessionContext value={context}>
        <LiveProvider onRefused={onRefused}>
          <DialogProvider>
            <Shell>
              <Pages />
            </Shell>
          </DialogProvider>
        </LiveProvider>
      </SessionContext>
    </QueryClientProvider>
  );
}

function Pages() {
  const [place] = useLocation();
  return (
    <Guard place={place}>
      <Suspense fallback={<main className="page"><Loading /></main>}>
        <Switch>
          <Route path="/" component={OverviewPage} />
          <Route path="/graphs" component={GraphsPage} />
          <Route path="/graphs/:id/:view?">{({ id, view }) => <GraphPage key={id} id={id} view={view ?? "drawing"} />}</Route>
          <Route path="/tasks" component={TasksPage} />
          <Route path="/tasks/:id/:tab?">{({ id, tab }) => <TaskPage key={id} id={id} tab={tab ?? "overview"} />}</Route>
          <Route path="/fleet" component={FleetPage} />
          <Route path="/fleet/bots/:id">{({ id }) => <BotPage key={id} id={decodeURIComponent(id)} />}</Route>
          <Route path="/limits" component={LimitsPage} />
          <Route path="/submit" component={SubmitPage} />
          <Route path="/events" component={EventsPage} />
          <Route path="/catalogue/:kind?">{({ kind }) => <CataloguePage key={kind} kind={kind ?? "job_template"} />}</Route>
          <Route path="/catalogue/:kind/:name">
            {({ kind, name }) => <DocumentPage key={kind + name} kind={kind} name={decodeURIComponent(name)} />}
          </Route>
          <Route path="/audit" component={AuditPage} />
          <Route path="/tokens" component={TokensPage} />
          <Route path="/secrets" component={SecretsPage} />
          <Route>
            <main className="page" id="content">
              <Empty title="There is nothing here">
                <span>The address may be wrong, or what was here has been deleted.</span>
              </Empty>
            </main>
          </Route>
        </Switch>
      </Suspense>
    </Guard>
  );
}
